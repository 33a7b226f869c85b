"""Print a report of the cluster for people: `accelshare inspect`, `accelshare explain`, the kubectl plugins, completion.

Belongs here: arguments, reading the API server once, printing, the screen that redraws itself. Never: writing to the cluster, an
extender to ask, sums (ledger/) or the looks of a table (report/). A person waits for the first byte: what is slow to load is
loaded when it is needed, and nothing here loads an event loop.
"""
