"""Fixture: the image, built on this machine."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from cluster.image import build_with_debian
from tests.e2e.image.archive import Archive


@pytest.fixture(scope="session")
def image(machine: None) -> Archive:
    """The archive of accelshare's image, built once per source; a build mounts."""
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.skip("a base image of Debian's packages needs root on Debian or Ubuntu")
    built = build_with_debian(print)
    assert built.archive is not None
    return Archive(Path(built.archive))
