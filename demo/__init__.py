"""`make demo`: accelshare's main job in seconds, from the manifest to the container, with no cluster, no hardware and no root.

Belongs here: setting the scene, small honest stand-ins for the parts of Kubernetes that are not there (scheduler, workload
controllers), and showing what happens. Extender and agents are the real ones, as processes of their own; the API server and the
kubelets in memory are the ones that are shipped.
Never: deciding about cards, a vendor's name (what is played stands in examples/demo/playlist.yaml).
"""
