"""Fakes for the demo and the tests: FakeApiServer, FakeKubelet and FakeRuntime.

Belongs here: stand-ins for the programs that accelshare talks to, with their real protocols; they run no containers. Never: code
that the product's commands use.
"""
