"""`make demo`: accelshare's main job in seconds, from the manifest to the container, without a cluster, hardware or root.

Belongs here: starting the demo's cluster, stand-ins for the missing parts of Kubernetes (scheduler, workload controllers),
running the scenario and printing what happens. Extender and agents are the real ones, as processes of their own; API server and
kubelets are the fakes of `accelshare.testing`.
Never: decisions about cards, a vendor's name (the scenario stands in examples/demo/scenario.yaml).
"""
