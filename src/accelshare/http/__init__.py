"""HTTP/1.1 for every process of the product: one server and one client, on asyncio and httptools.

Belongs here: sockets, TLS handshakes, parsing, time limits, and bounds on what a peer may cost.
Never: what a path means, what the API server is, who may call.

ARCHITECTURE.md has the measurements that decided against uvicorn and aiohttp; `python -m bench.http_stacks` repeats them.
"""
