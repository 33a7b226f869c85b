"""`python -m bench.node.nri_decoding`: µs to decode a CreateContainer request of containerd 2.4.2, and to answer it.

The requests are those that tests/contract/agent/nri/recorded has from a real containerd, about 3 kB each.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from accelshare.agent.nri.protocol import mux
from accelshare.agent.nri.protocol.messages import adjustment, decode, environment
from accelshare.agent.nri.protocol.nri_pb2 import CreateContainerRequest, CreateContainerResponse
from accelshare.agent.nri.protocol.ttrpc import Packets
from accelshare.agent.nri.protocol.ttrpc_pb2 import Request
from tests.contract.agent.nri import recording

ROUNDS: Final = 20
CALLS: Final = 500


def main() -> None:
    response = CreateContainerResponse(adjust=adjustment(env={"CARD": "0"}))
    for payload in sorted(set(_requests()), key=len):
        times = {
            "decode": _best_us(partial(decode, CreateContainerRequest, payload)),
            "decode_and_read": _best_us(partial(_variables, payload)),
            "encode": _best_us(response.SerializeToString),
        }
        print(f"CreateContainer bytes={len(payload)}", *(f"{name}_us={took:.1f}" for name, took in times.items()))


def _variables(payload: bytes) -> dict[str, str]:
    return environment(decode(CreateContainerRequest, payload).container)


def _requests() -> Iterator[bytes]:
    file = recording.RECORDED / "containerd-v2.4.2.txt"
    raw = b"".join(data for sender, data in recording.read(file) if sender == recording.RUNTIME)
    packets = Packets()
    for stream, content in mux.Frames().feed(raw):
        for packet in packets.feed(content) if stream == mux.PLUGIN else ():
            request = decode(Request, packet.data)
            if request.method == "CreateContainer":
                yield request.payload


def _best_us(call: Callable[[], object]) -> float:
    """Of several rounds the fastest: other programs only add to it."""

    def one_round() -> float:
        started = time.perf_counter()
        for _ in range(CALLS):
            call()
        return (time.perf_counter() - started) / CALLS * 1e6

    return min(one_round() for _ in range(ROUNDS))


if __name__ == "__main__":
    main()
