"""The ledger: which pod holds how much of which card, and where the next pod can go.

Belongs here: the nouns, the sums, the choice of cards, the closed list of refusals.
Never: a clock, randomness, logging, async, files, sockets, Kubernetes' words, a vendor's name. Everything is synchronous,
so inside one event loop a `hold` is atomic.
"""
