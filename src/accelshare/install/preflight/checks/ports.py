"""Whether the node ports that the originals' users know are free.

Belongs here: Services of others on those ports. Never: our own default, which needs no node port.
"""

from collections.abc import Iterator

from accelshare.install.preflight.findings import Finding, Grade
from accelshare.install.preflight.snapshot import Snapshot, ours
from accelshare.vendors.catalog import Catalog


def check(snapshot: Snapshot, catalog: Catalog) -> Iterator[Finding]:
    if "services" in snapshot.unread:
        return
    wanted = {profile.http.node_port for profile in catalog} - {None}
    taken = {
        port.node_port: service.metadata.title
        for service in snapshot.services
        for port in service.spec.ports
        if port.node_port in wanted and not ours(service.metadata)
    }
    for port, title in sorted(taken.items()):
        yield Finding(
            "ports",
            Grade.WARNING,
            f"Service {title} has node port {port}, so service.nodePort {port} would be refused; the default needs no node port",
            ("leave service.type at ClusterIP, or delete that Service first",),
        )
    if not taken:
        shown = ", ".join(str(port) for port in sorted(port for port in wanted if port is not None))
        yield Finding("ports", Grade.FINE, f"nobody has the node ports {shown}")
