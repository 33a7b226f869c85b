"""The node agent: discovers this node's cards, publishes them on the Node, and gives each container its cards.

Belongs here: discovery (`discovery/`), delivery through kubelet's device plugins (`device_plugin/`) or the container runtime
(`nri/`), and what both share. `serving.py` builds all parts. Never: which node or card a pod gets (ledger/), how hardware is
asked (vendors/drivers), other commands.
"""
