"""A fake API server for the demo and the tests: the part of Kubernetes' API that accelshare uses.

Belongs here: resources as data, the verbs on them, HTTP, and injected faults. tests/contract/test_api_server.py sends the same
requests to it and to the real kube-apiserver.
Never: scheduling, controllers, kubelets; anything that the contract suite does not cover.
"""

from accelshare.testing.api_server.faults import Fault, Faults
from accelshare.testing.api_server.server import FakeApiServer
from accelshare.testing.api_server.store import Store

__all__ = ["FakeApiServer", "Fault", "Faults", "Store"]
