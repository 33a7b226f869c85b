"""The generated protobuf modules are what `make protos` makes of the .proto files."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROTOS = [file.relative_to(ROOT) for folder in ("src", "tests") for file in sorted((ROOT / folder).rglob("*.proto"))]


@pytest.mark.parametrize("proto", PROTOS, ids=lambda proto: proto.name)
def test_the_generated_modules_are_current(proto: Path, tmp_path: Path) -> None:
    include = ROOT / "src" if proto.parts[0] == "src" else ROOT
    command = ["-m", "grpc_tools.protoc", f"-I{include}", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", str(ROOT / proto)]
    subprocess.run([sys.executable, *command], check=True)
    generated = sorted(tmp_path.rglob("*_pb2.py*"))
    assert [file.suffix for file in generated] == [".py", ".pyi"]
    for file in generated:
        assert (include / file.relative_to(tmp_path)).read_text() == file.read_text(), f"{file.name}: run `make protos`"
