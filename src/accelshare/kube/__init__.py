"""The only package that talks to the API server.

Belongs here: finding the cluster (kubeconfig, in-cluster), credentials, requests, lists, watches, binding, Events, Leases.
Library errors are translated into the tree in `errors`.
Never: a decision, sockets (http/). Nothing in here knows what a card, a share or an assignment is.

`errors`, `config` and `sync_client` need no event loop: importing asyncio would cost `inspect` a quarter of its CPU to the first
byte. Nothing is re-exported here for the same reason: import the module that has the name.
"""
