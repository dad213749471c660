"""The checked-in stubs belong to the .proto that lies beside them."""

import hashlib
import importlib.util
import itertools
import re
from pathlib import Path

import pytest

from seedrl.wire import seedrl_pb2, version

_ROOT = Path(__file__).resolve().parents[3]
_PROTO = _ROOT / "proto" / "seedrl" / "wire" / "seedrl.proto"
_STUBS = ("seedrl_pb2.py", "seedrl_pb2.pyi", "seedrl_pb2_grpc.py")


@pytest.mark.parametrize("name", _STUBS)
def test_every_stub_records_the_hash_of_the_proto(name: str) -> None:
    digest = hashlib.sha256(_PROTO.read_bytes()).hexdigest()
    lines = (_ROOT / "seedrl" / "wire" / name).read_text().splitlines()
    assert f"# seedrl/wire/seedrl.proto sha256 {digest}" in lines, "run proto/generate.py"


def test_stubs_are_what_the_generator_writes(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools", reason="only where grpcio-tools is installed")
    path = _ROOT / "proto" / "generate.py"
    spec = importlib.util.spec_from_file_location("generate", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.generate(tmp_path)
    for name in _STUBS:
        written = (tmp_path / "seedrl" / "wire" / name).read_text()
        assert written == (_ROOT / "seedrl" / "wire" / name).read_text(), "run proto/generate.py"


def test_only_step_and_actions_are_bytes_fields() -> None:
    found = {
        (message.name, field.name)
        for message in seedrl_pb2.DESCRIPTOR.message_types_by_name.values()
        for field in message.fields
        if field.type == field.TYPE_BYTES
    }
    assert found == {("FromEnvServer", "step"), ("FromLearner", "actions")}


def test_proto_is_no_python_package() -> None:
    # A package named `proto` would shadow proto-plus.
    assert not list((_ROOT / "proto").rglob("__init__.py"))


def test_the_comments_name_the_version_that_is_sent() -> None:
    text = _PROTO.read_text()
    assert f"learner, version {version.MAJOR}.{version.MINOR}." in text
    assert f"Hello carries major {version.MAJOR} and minor {version.MINOR}." in text
    assert f"//   {version.MAJOR}.{version.MINOR}   " in text


def test_every_field_has_a_comment() -> None:
    lines = _PROTO.read_text().splitlines()
    fields = [
        (before, line)
        for before, line in itertools.pairwise(lines)
        if re.match(r"  (repeated )?\w+ \w+ = \d+;", line)
    ]
    assert len(fields) > 25
    is_said = ["//" in line or before.strip().startswith("//") for before, line in fields]
    assert [line for (_, line), said in zip(fields, is_said, strict=True) if not said] == []
