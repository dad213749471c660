# /// script
# requires-python = ">=3.11"
# dependencies = ["grpcio-tools==1.76.0"]
# ///
"""Writes the checked-in protobuf stubs of seedrl.wire from proto/seedrl/wire/seedrl.proto.

Run it after every change of the .proto, with `uv run proto/generate.py` or, in an environment of
its own that has grpcio-tools 1.76.0, with `python proto/generate.py`. The output folder may be
given as the only argument; by default it is the repository. The stubs of grpcio-tools 1.76.0 run on
protobuf 6.31.1 and later; it stays out of the development environment, because it would hold
protobuf below the version that the tests use.
"""

import hashlib
import sys
from importlib.resources import files
from pathlib import Path

PROTO_ROOT = Path(__file__).resolve().parent
PROTO = "seedrl/wire/seedrl.proto"
STUBS = ("seedrl_pb2.py", "seedrl_pb2.pyi", "seedrl_pb2_grpc.py")


def header() -> str:
    """First lines of every stub: no linting or formatting, and the .proto it was made from."""
    digest = hashlib.sha256((PROTO_ROOT / PROTO).read_bytes()).hexdigest()
    return f"# ruff: noqa\n# fmt: off\n# mypy: ignore-errors\n# {PROTO} sha256 {digest}\n"


def generate(target: Path) -> None:
    """Writes the stubs under `target`. Raises RuntimeError if protoc refuses the .proto."""
    from grpc_tools import protoc

    includes = [f"-I{PROTO_ROOT}", f"-I{files('grpc_tools') / '_proto'}"]
    outputs = [f"--{kind}={target}" for kind in ("python_out", "pyi_out", "grpc_python_out")]
    if status := protoc.main(["protoc", *includes, *outputs, PROTO]):
        raise RuntimeError(f"expected protoc to accept {PROTO}, it exited with {status}")
    for name in STUBS:
        path = target / "seedrl" / "wire" / name
        path.write_text(header() + path.read_text())


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else PROTO_ROOT.parent)
