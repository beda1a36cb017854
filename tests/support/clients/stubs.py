"""Stubs and servicers of the gRPC services, generated as a client generates them. The product needs none.

They are made once, in `build/stubs/`, in a folder named by all that they depend on. Processes may make them at the same
time: each writes a folder of its own, and the first rename wins.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import importlib.util
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from grpc_tools import protoc
from support.paths import ROOT

_PROTOS: Final = ROOT / "protos" / "pdp" / "v1"
_PACKAGE: Final = "pdp/surfaces/wire"
_FILE: Final = "decision_pb2_grpc.py"


def stub_file(folder: Path = ROOT / "build" / "stubs") -> Path:
    """Return the file with the stubs below a folder; generate it unless it exists."""
    digest = hashlib.sha256(version("grpcio-tools").encode() + (_PROTOS / "decision.proto").read_bytes()).hexdigest()
    made = folder / digest[:16]
    if not made.exists():
        folder.mkdir(parents=True, exist_ok=True)
        generate(made)
    return made / _FILE


def generate(made: Path) -> None:
    """Make a folder with the stubs, unless another process makes it first."""
    with tempfile.TemporaryDirectory(dir=made.parent) as work:
        folders = [f"-I{_PACKAGE}={_PROTOS}", f"-I{importlib.resources.files('grpc_tools') / '_proto'}"]
        if code := protoc.main(["protoc", *folders, f"--grpc_python_out={work}", f"{_PACKAGE}/decision.proto"]):
            message = f"protoc ends with {code}"
            raise RuntimeError(message)
        try:
            (Path(work) / _PACKAGE).rename(made)
        except OSError:
            if not made.exists():
                raise


def _load(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


wire_grpc: Final[Any] = _load(stub_file())
"""The generated module."""
