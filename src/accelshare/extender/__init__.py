"""The scheduler extender: serves kube-scheduler's filter, prioritize, preempt and bind over HTTP.

Belongs here: these verbs; inspect, version, health and metrics; TLS; the probe port.
Never: how cards are chosen (ledger/), the encoding of objects (wire/), the API server's protocol (kube/), sockets (http/),
drivers, other commands. filter, prioritize and preempt read the ledger and write nothing; filter holds cards for
members of gangs.
"""
