"""The node's side: what this node has, told to the cluster, and exactly the given card handed to each container.

Belongs here: discover → inventory → health → deliver → reconcile. Delivery is one seam (`delivery.py`) with ways behind it;
`device_plugin/` speaks kubelet's gRPC. Never: which node or card a pod should go to (ledger/), how hardware is asked
(vendors/drivers), other shells.
"""
