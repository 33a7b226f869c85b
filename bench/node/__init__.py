"""Benchmarks of one node: `python -m bench.node` measures the agent and what it adds to a container's start.

Belongs here: the agent as a process of its own, beside an in-memory API server (lodge, plugin_calls, footprint) and on the real
kubelet and containerd of the local cluster (real_node, starting, rush). Never: the scheduler's side (bench/), pass or fail of a
test run, numbers not measured.

The pure parts (zpu, settings, results, goals, latency, document) do no I/O.
"""
