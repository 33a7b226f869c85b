"""An API server in memory, for the demo and the tests: the part of Kubernetes that accelshare talks to, and no more.

Belongs here: resources as data, the verbs on them, their wire, and faults to inject. Whatever it answers is held to the real
kube-apiserver by tests/contract/test_api_server.py, which asks both the same questions.
Never: scheduling, controllers, kubelets; anything that the contract suite does not cover.
"""

from accelshare.testing.api_server.faults import Fault, Faults
from accelshare.testing.api_server.server import FakeApiServer
from accelshare.testing.api_server.store import Store

__all__ = ["FakeApiServer", "Fault", "Faults", "Store"]
