"""Readers of files: sums, what a checkpoint says of itself, recordings, tokens, logs."""

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from envs_server.sent_log import SentLog
from seedrl import checkpoints, sums
from seedrl.errors import CheckpointError, ConfigError
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import TimeStep
from seedrl.wire.credentials import Certificates, read_token
from seedrl.wire.framing import WireError
from seedrl.wire.recording import Record, Recording, RecordingHeader, RecordLayout
from tests.tools.fuzz.target import Target, assert_one_line

# In memory where there is such a place: a disk would take most of the time.
_MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
_folder = tempfile.TemporaryDirectory(prefix="seedrl-fuzz-", dir=_MEMORY)
_ROOT = Path(_folder.name)
_CONTENT = b"what is listed"


def _entry(data: bytes) -> list[object]:
    return [len(data), hashlib.sha256(data).hexdigest()]


def _in(name: str) -> Path:
    folder = _ROOT / name
    folder.mkdir(exist_ok=True)
    return folder


def read_sums(data: bytes) -> bool:
    """Accepted are sums that list the one file that there is, as it is."""
    folder = _in(f"{7:012d}")
    (folder / "file").write_bytes(_CONTENT)
    (folder / sums.NAME).write_bytes(data)
    try:
        problem = sums.damage(folder)
    except CheckpointError as error:  # of another format
        problem = str(error)
    if problem is not None:
        assert_one_line(problem)
        return False
    assert json.loads(data)["files"] == {"file": _entry(_CONTENT)}
    return True


def read_meta(data: bytes) -> bool:
    """What an intact checkpoint says of itself, whoever wrote it."""
    folder = _in("checkpoints") / f"{7:012d}"
    folder.mkdir(exist_ok=True)
    (folder / "meta.json").write_bytes(data)
    (folder / sums.NAME).write_bytes(_sums({"meta.json": _entry(data)}))
    try:
        found = checkpoints.latest(folder.parent)
    except CheckpointError as error:
        assert_one_line(error)
        return False
    assert found is not None and isinstance(found.step, int) and isinstance(found.meta, dict)
    return True


def read_recording(data: bytes) -> bool:
    """A recording's header, and its first records."""
    path = _ROOT / "recording"
    path.write_bytes(data)
    try:
        with Recording(path) as recording:
            assert data.startswith(recording.header.encode())
            for number in range(min(recording.num_records, 3)):
                assert recording.read(number) is not None
    except WireError as error:
        assert_one_line(error)
        return False
    return True


def read_token_file(data: bytes) -> bool:
    """A token, which no error quotes."""
    path = _ROOT / "token"
    path.write_bytes(data)
    try:
        token = read_token(path)
    except ConfigError as error:
        assert_one_line(error)
        text = data.decode("latin-1").strip()
        assert len(text) < 8 or text not in str(error)
        return False
    assert token.isascii() and token.isprintable() and token.encode() in data
    return True


def read_certificates(data: bytes) -> bool:
    """Files of TLS, of either side. Accepted is an authority; none is a certificate and its key."""
    path = _ROOT / "authority.pem"
    path.write_bytes(data)
    is_read = False
    for certificates in (Certificates(authority=path), Certificates(path, path, path)):
        try:
            is_read |= certificates.of_client() is not None
            is_read |= certificates.of_server() is not None
        except ConfigError as error:
            assert_one_line(error)
    return is_read


def read_sent_log(data: bytes) -> bool:
    """An env server's own log: its first rows are `data`, the rest is empty."""
    path = _ROOT / "sent"
    path.write_bytes(data.ljust(_SENT_LOG_BYTES, b"\0") if data else data)
    try:
        log = SentLog(path)
    except ValueError as error:
        assert_one_line(error)
        return False
    try:
        for sent in log.report():
            sent.SerializeToString()
    finally:
        os.close(log._lock)  # it would be held as long as this process lives
    return True


_SENT_LOG_BYTES = 8 * 5 * 1024
_SENT_LOG = np.array([[0, 0, 0, 0, 0], [2**63, 0, 2, 9, 8], [2**63, 1, 3, 9, 9]], np.uint64)
_SENT_LOG[0, 0] = int.from_bytes(b"seedrl 1", "little")
_SPEC = EnvSpec(ArraySpec((2,), "float32"), DiscreteSpec(3))
_RECORD = Record(
    TimeStep(
        np.zeros(2, np.uint8),
        np.zeros(2, np.float32),
        np.ones(2, np.float32),
        np.ones((2, 2), np.float32),
    ),
    np.array([0, 2], np.int32),
)


# Of an authority whose key nobody has.
_CERTIFICATE = (
    b"-----BEGIN CERTIFICATE-----\n"
    b"MIIBcDCCARWgAwIBAgIUY1OS3mlSycohdAOS0HgWKQbJnkIwCgYIKoZIzj0EAwIw\n"
    b"DDEKMAgGA1UEAwwBeDAgFw0yNjExMjMwMjIxMDhaGA8yMTI2MTAzMDAyMjEwOFow\n"
    b"DDEKMAgGA1UEAwwBeDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABPRsW3q+SVff\n"
    b"g+G5D7KoipdplhiYFW56731ohBy8inTuHJFOhlXQyLrOMM77LSBQpr2g1sS4lPdx\n"
    b"OFHddYxODhSjUzBRMB0GA1UdDgQWBBRWFpawlVrCPsSsUC1wPFD2cJv/nzAfBgNV\n"
    b"HSMEGDAWgBRWFpawlVrCPsSsUC1wPFD2cJv/nzAPBgNVHRMBAf8EBTADAQH/MAoG\n"
    b"CCqGSM49BAMCA0kAMEYCIQDBUCWGlU+DK3k6gYgu4RXMCOhO4M1pgetyBztxbVaO\n"
    b"QAIhAJW/WhI/eMe/s5Lqh5455icQ6iFhcWRZ6tORFDhOZ0GA\n"
    b"-----END CERTIFICATE-----\n"
)


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _sums(files: dict[str, Any]) -> bytes:
    content = {"format": sums.FORMAT, "step": 7, "files": files}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return _json({**content, "sha256": digest})


TARGETS = (
    Target("sums", read_sums, (_sums({"file": _entry(_CONTENT)}), _sums({}))),
    Target("meta", read_meta, (_json({"env_steps": 3, "config": "{}", "limiter": {}}),)),
    Target(
        "recordings",
        read_recording,
        (
            RecordingHeader(_SPEC, (4, 5)).encode()
            + b"".join(RecordLayout(_SPEC, 2).pack(number, _RECORD) for number in range(2)),
        ),
    ),
    Target("tokens", read_token_file, (b"0123456789abcdef0123456789abcdef\n",)),
    Target(
        "certificates",
        read_certificates,
        (_CERTIFICATE, b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"),
    ),
    Target("sent_logs", read_sent_log, (_SENT_LOG.tobytes(), b"")),
)
