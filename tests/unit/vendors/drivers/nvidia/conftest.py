"""The fake nvidia hardware, compiled once for the run and copied for each test."""

from pathlib import Path

import pytest

from tests.fakes.build import build
from tests.fakes.hardware import Hardware


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("nvidia", tmp_path_factory.mktemp("nvidia"))


@pytest.fixture
def hardware(built: Path, tmp_path: Path) -> Hardware:
    return Hardware.copied(built, tmp_path)
