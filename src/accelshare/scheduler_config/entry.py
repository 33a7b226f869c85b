"""The extender's entry in kube-scheduler's configuration, in each dialect.

Belongs here: the entry's fields. Never: the configuration around it.
"""

from typing import Any

from accelshare.scheduler_config.release import Dialect
from accelshare.scheduler_config.wish import Wish


def entry(wish: Wish, dialect: Dialect) -> dict[str, Any]:
    """The fields in the order in which people read them; what is left out is kube-scheduler's default."""
    content: dict[str, Any] = {
        "urlPrefix": wish.url,
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "bindVerb": "bind",
        "weight": wish.weight,
        dialect.https_key: wish.tls is not None,
        "httpTimeout": wish.timeout_ms * 1_000_000 if dialect.timeout_in_nanoseconds else _duration(wish.timeout_ms),
        "nodeCacheCapable": True,  # only names travel; without it in-tree scores see empty nodes from 1.33 on
    }
    if wish.tls is not None:
        files = {
            "caFile": wish.tls.ca_file,
            "certFile": wish.tls.cert_file,
            "keyFile": wish.tls.key_file,
            "serverName": wish.tls.server_name,
        }
        content["tlsConfig"] = {key: value for key, value in files.items() if value is not None}
    # Not ignored by the scheduler: it counts the node's total too, and so finds victims to preempt.
    content["managedResources"] = [{"name": name, "ignoredByScheduler": False} for name in wish.resources]
    return content


def _duration(milliseconds: int) -> str:
    seconds, rest = divmod(milliseconds, 1000)
    return f"{milliseconds}ms" if rest else f"{seconds}s"
