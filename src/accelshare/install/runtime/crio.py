"""What CRI-O's files must say so that it insists on its plugins. Read in its source, not tried on a running one.

Belongs here: our drop-in. Never: the main file, which need not be changed.
"""

from pathlib import Path
from typing import Any, Final

from accelshare.install.errors import NotUnderstood
from accelshare.install.runtime import toml_text
from accelshare.install.runtime.plan import Plan, PlannedFile
from accelshare.runtimes import crio
from accelshare.runtimes.tree import Tree

DROP_IN: Final = "zz-accelshare.conf"  # files are read by name, and the last word counts
UNTRIED: Final = "the settings for CRI-O were read in its source and never tried on a running one; look into its log afterwards"
_HEAD: Final = """\
# Written by `accelshare runtime-config`, which can take it back. It makes CRI-O refuse a container whose pod
# requires a plugin that is away, instead of making it without its cards.
"""


def plan(config: Path, *, directory: Path | None) -> Plan:
    drop_in = (directory or crio.directory(config)) / DROP_IN
    before = crio.said(crio.layers(config, Tree({drop_in: None})))
    if before.insists:
        return Plan((), (f"the validator is on already, in {before.validator_in}",))
    section: dict[str, Any] = {}
    if not before.nri:
        section["enable_nri"] = True
    if not before.connections:
        section["nri_disable_connections"] = False
    section[crio.VALIDATOR] = {crio.ENABLE_VALIDATOR: True}
    content = (f"{_HEAD}\n" + "\n".join(toml_text.table(("crio", "nri"), section)) + "\n").encode()
    after = crio.said(crio.layers(config, Tree({drop_in: content})))
    if not after.insists:
        where = f"{after.validator_in} has the last word" if drop_in in after.files else f"CRI-O does not read {drop_in.parent}"
        raise NotUnderstood(f"{drop_in} would have no effect: {where}")
    return Plan((PlannedFile(drop_in, content, ours=True),), (UNTRIED,))
