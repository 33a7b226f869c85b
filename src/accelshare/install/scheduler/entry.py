"""The extender's entry in kube-scheduler's configuration, in each dialect.

Belongs here: the entry's fields. Never: the configuration around it.
"""

from typing import Any

from accelshare.install.scheduler.desired_config import DesiredConfig
from accelshare.install.scheduler.release import Dialect


def entry(desired: DesiredConfig, dialect: Dialect) -> dict[str, Any]:
    """The fields in the order in which people read them; what is left out is kube-scheduler's default."""
    content: dict[str, Any] = {
        "urlPrefix": desired.url,
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "bindVerb": "bind",
        "weight": desired.weight,
        dialect.https_key: desired.tls is not None,
        "httpTimeout": desired.timeout_ms * 1_000_000 if dialect.timeout_in_nanoseconds else _duration(desired.timeout_ms),
        "nodeCacheCapable": True,  # only names travel; without it in-tree scores see empty nodes from 1.33 on
    }
    if desired.tls is not None:
        files = {
            "caFile": desired.tls.ca_file,
            "certFile": desired.tls.cert_file,
            "keyFile": desired.tls.key_file,
            "serverName": desired.tls.server_name,
        }
        content["tlsConfig"] = {key: value for key, value in files.items() if value is not None}
    # Not ignored by the scheduler: it counts the node's total too, and so finds victims to preempt.
    content["managedResources"] = [{"name": name, "ignoredByScheduler": False} for name in desired.resources]
    return content


def _duration(milliseconds: int) -> str:
    seconds, rest = divmod(milliseconds, 1000)
    return f"{milliseconds}ms" if rest else f"{seconds}s"
