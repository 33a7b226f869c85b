"""Answers of the API server and of the extender, as far as the benchmarks read them.

Belongs here: shapes of JSON. Never: requests (calls.py, workload.py).
"""

import msgspec


class Metadata(msgspec.Struct):
    name: str
    uid: str


class Pod(msgspec.Struct):
    metadata: Metadata


class FilterAnswer(msgspec.Struct, rename="pascal"):
    node_names: list[str] | None = None
    error: str = ""


class BindAnswer(msgspec.Struct, rename="pascal"):
    error: str = ""
