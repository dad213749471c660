"""The checked-in stubs belong to the .proto that lies beside them."""

import hashlib
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[3]
_PROTO = _ROOT / "proto" / "seedrl" / "wire" / "seedrl.proto"
_STUBS = ("seedrl_pb2.py", "seedrl_pb2.pyi", "seedrl_pb2_grpc.py")


@pytest.mark.parametrize("name", _STUBS)
def test_every_stub_records_the_hash_of_the_proto(name: str) -> None:
    digest = hashlib.sha256(_PROTO.read_bytes()).hexdigest()
    lines = (_ROOT / "seedrl" / "wire" / name).read_text().splitlines()
    assert f"# seedrl/wire/seedrl.proto sha256 {digest}" in lines, "run proto/generate.py"
