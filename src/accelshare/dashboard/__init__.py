"""The dashboard: one web page with every card, who is on it, what waits and why; live, read-only, without other services.

Belongs here: watching the cluster for it, snapshots of the ledger, their stream to browsers, who may read it, the page itself.
Never: counting (ledger/, report/), a write to the cluster, a file or a host from elsewhere in the page.
"""
