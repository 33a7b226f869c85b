"""The scheduler extender: HTTP for kube-scheduler and for people who ask why.

Belongs here: answering filter, prioritize, preempt and bind; inspect, version, health and metrics; one TCP port.
Never: how cards are chosen (ledger/), how objects are spelled (wire/), how the API server is spoken to (kube/), drivers,
other shells. filter, prioritize and preempt read the ledger and write nothing, ever.
"""
