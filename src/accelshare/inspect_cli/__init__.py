"""Commands that show the cluster: `accelshare inspect`, `accelshare explain`, the kubectl plugins, shell completion.

Belongs here: arguments, reading the API server, printing. Never: writing to the cluster, calling the extender, sums (ledger/) or
the layout of tables (report/). A person waits for the first byte: modules that are slow to load are imported where they are
needed, and nothing here imports an event loop.
"""
