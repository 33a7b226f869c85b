"""`make demo`: accelshare's main job in seconds, with no cluster, no hardware and no root.

Belongs here: setting the scene, small honest stand-ins for the parts of Kubernetes that are not there (scheduler, workload
controllers, kubelet), and showing what happens. The API server in memory and the extender are the ones that are shipped.
Never: deciding about cards, a vendor's name (what is played stands in examples/demo/playlist.yaml).
"""
