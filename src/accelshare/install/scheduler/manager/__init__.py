"""kube-scheduler's configuration on every control-plane node, kept as wished without a person.

Belongs here: one caretaker a node (`caretaker.py`), which looks again and again; what it needs to know from the cluster and tells
it (`board.py`); kube-scheduler's client certificate on the host (`client_files.py`); taking all of it out again (`restoring.py`).
Never: a rule about the configuration itself: whatever is done here, `accelshare scheduler-config` does the same by hand.
"""
