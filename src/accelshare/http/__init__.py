"""HTTP for every process of the product: one server (HTTP/1.1 and HTTP/2) and one client (HTTP/1.1), on asyncio and httptools.

Belongs here: sockets, TLS handshakes, parsing, time limits, and bounds on what a peer may cost.
Never: what a path means, what the API server is, who may call.

ARCHITECTURE.md has the measurements that decided against uvicorn, aiohttp and h2; `python -m bench.http_stacks` repeats them.
"""
