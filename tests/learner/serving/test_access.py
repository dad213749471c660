"""The way to a learner: its address, and who gets in, against the real service over real gRPC."""

import contextlib
import dataclasses
import datetime
import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest

from envs_server.client import Client
from envs_server.options import Options
from envs_server.stop import Stop
from learner.cli.certificates import make
from learner.report.env_servers import EnvServerRegistry
from learner.serving.access import lock_address, private_address
from learner.serving.batching import free_running
from learner.serving.core import Serving
from learner.serving.hub import Hub
from learner.serving.leases import SlotTable
from learner.serving.server import Service
from seedrl.config import EnvironmentConfig, ServingConfig
from seedrl.errors import AddressInUseError, ConfigError
from seedrl.wire import seedrl_pb2
from seedrl.wire.channel import LearnerConnection
from seedrl.wire.credentials import Certificates, read_token, tls_advice
from seedrl.wire.framing import ToLearner
from tests.learner.report.listener import Heard
from tests.learner.serving.scripted_env_server import hello
from tests.patience import SECONDS

_DAY = datetime.timedelta(days=1)
_EXPIRED = datetime.timedelta(seconds=-60)


class _Site(NamedTuple):
    """Two authorities, files that have expired, and learners with and without TLS.

    Attributes:
      said: everything that a learner's user reads.
    """

    folder: Path
    said: Heard
    tls: Service
    plain: Service


def _service(said: Heard, config: ServingConfig) -> Service:
    slots = SlotTable(training=4, evaluation=0, seed=3)
    serving = Serving(slots, page_steps=2, rule=free_running(0.005))
    hub = Hub(serving, EnvironmentConfig(id="Some-v0"), registry=EnvServerRegistry(said))
    service = Service(hub, config)
    service.start()
    return service


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Site]:
    folder, said = tmp_path_factory.mktemp("site"), Heard()
    for name in ("own", "other"):
        (folder / name).mkdir()
        make(folder / name, (), _DAY)
    shutil.copytree(folder / "own", folder / "expired")
    make(folder / "expired", (), _EXPIRED)
    own = folder / "own"
    base = ServingConfig(
        bind="127.0.0.1:0",
        training_slots=4,
        evaluation_slots=0,
        token_file=str(own / "token"),
    )
    tls = dataclasses.replace(
        base,
        authority=str(own / "ca.pem"),
        certificate=str(own / "learner.pem"),
        private_key=str(own / "learner.key"),
    )
    services = [_service(said, config) for config in (tls, base)]
    yield _Site(folder, said, *services)
    for service in services:
        service.stop(grace_seconds=0.0)


def _credentials(own: Path | None, authority: Path) -> grpc.ChannelCredentials | None:
    pair = (own / "env_server.pem", own / "env_server.key") if own else (None, None)
    return Certificates(*pair, authority / "ca.pem").of_client()


@contextlib.contextmanager
def _connection(
    service: Service, token: str, credentials: grpc.ChannelCredentials | None
) -> Iterator[LearnerConnection]:
    with LearnerConnection(
        service.address.replace("127.0.0.1", "localhost"),
        local_link=False,
        token=token,
        credentials=credentials,
    ) as connection:
        yield connection


def _refused(
    service: Service,
    token: str,
    credentials: grpc.ChannelCredentials | None,
    message: ToLearner,
) -> tuple[grpc.StatusCode, str]:
    with _connection(service, token, credentials) as connection:
        connection.put(message)
        with pytest.raises(grpc.RpcError) as failure:
            next(connection.messages())
    return failure.value.code(), failure.value.details()


# Each: whose certificate, which authority, whose token; what the env server's user hears.
_UNAUTHENTICATED = "expected the learner's token; give a copy of its file as --token-file"
_MATRIX = {
    "no token": ("own", "own", "", "token"),
    "wrong token": ("own", "own", "other", "token"),
    "no certificate": (None, "own", "own", "--certificate"),
    "expired certificate": ("expired", "own", "own", "--certificate"),
    "certificate of another authority": ("other", "own", "own", "--certificate"),
    "learner of another authority": ("other", "other", "own", "--authority"),
}


def _token(site: _Site, of: str) -> str:
    return read_token(site.folder / of / "token") if of else ""


@pytest.mark.parametrize("case", _MATRIX)
def test_without_the_right_token_and_certificate_nobody_gets_in(site: _Site, case: str) -> None:
    own, authority, token, heard = _MATRIX[case]
    credentials = _credentials(own and site.folder / own, site.folder / authority)
    code, details = _refused(site.tls, _token(site, token), credentials, hello())
    _check_refused(code, details, heard)
    _check_nobody_is_there(site)


def test_without_tls_nobody_gets_into_a_port_that_speaks_it(site: _Site) -> None:
    code, details = _refused(site.tls, _token(site, "own"), None, hello())
    _check_refused(code, details, "serving.certificate")
    _check_nobody_is_there(site)


def test_a_stolen_lease_key_or_a_replayed_hello_is_worth_nothing_without_the_token(
    site: _Site,
) -> None:
    with _connection(site.plain, _token(site, "own"), None) as owner:
        own = hello()
        owner.put(own)
        key = next(owner.messages()).assign.lease
        stolen = hello(sent=[seedrl_pb2.Sent(lease=key)])
        for sent in (stolen, own):
            for token in ("", _token(site, "other"), f"{_token(site, 'own')}x"):
                code, details = _refused(site.plain, token, None, sent)
                assert (code, details) == (grpc.StatusCode.UNAUTHENTICATED, _UNAUTHENTICATED)
        assert len(site.plain.hub._serving.slots.leases) == 1
        assert str(key) not in str(site.said.events)
    assert site.plain.hub.wait_until(lambda: site.plain.hub._serving.slots.num_free == 4, SECONDS)


def test_who_has_both_gets_in(site: _Site) -> None:
    credentials = _credentials(site.folder / "own", site.folder / "own")
    with _connection(site.tls, _token(site, "own"), credentials) as connection:
        connection.put(hello())
        assert len(next(connection.messages()).assign.groups) == 1
    assert site.tls.hub.wait_until(lambda: site.tls.hub._serving.slots.num_free == 4, SECONDS)


def test_an_env_server_names_a_mistake_in_tls_at_its_first_try(
    site: _Site, caplog: pytest.LogCaptureFixture
) -> None:
    """It was "nothing listens there yet", and the next line came a minute later."""

    class AfterOneLine(Stop):
        @property
        def is_requested(self) -> bool:
            return bool(caplog.messages)

    credentials = _credentials(site.folder / "own", site.folder / "own")
    options = Options(learner=site.plain.address, num_envs=1)
    Client(options, AfterOneLine(), credentials=credentials).run()
    assert "TLS" in caplog.messages[0]


def _check_refused(code: grpc.StatusCode, details: str, heard: str) -> None:
    if heard == "token":
        assert (code, details) == (grpc.StatusCode.UNAUTHENTICATED, _UNAUTHENTICATED)
        return
    assert code is grpc.StatusCode.UNAVAILABLE
    advice = tls_advice(details)
    assert "TLS" in advice and heard in advice


def _check_nobody_is_there(site: _Site) -> None:
    for service in (site.tls, site.plain):
        assert service.hub._serving.slots.num_free == 4
        assert not service.hub._serving.slots.leases
        assert not any(service.hub.ledger().values())
    said = str(site.said.events)
    for name in ("own", "other", "expired"):
        assert _token(site, name) not in said


# --- the address ---


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # Those of pytest may be longer than a socket's path can be.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "gettempdir", lambda: folder)
        yield Path(folder)


def test_it_is_the_same_for_each_learner_of_a_run_and_nobody_else_can_look(parent: Path) -> None:
    one, again, other = (private_address(Path(name)) for name in ("a", "./a", "b"))
    assert one == again != other
    folder = Path(one.removeprefix("unix:")).parent
    assert folder.parent == parent
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_of_somebody_else_is_not_trusted(parent: Path) -> None:
    folder = parent / f"seedrl-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o755)
    with pytest.raises(ConfigError):
        private_address(Path("a"))
    folder.rmdir()
    folder.symlink_to(parent)
    with pytest.raises(ConfigError):
        private_address(Path("a"))


def test_a_socket_path_is_private_and_held_until_it_is_released(tmp_path: Path) -> None:
    bind = f"unix:{tmp_path}/sockets/socket"
    lock = lock_address(bind)
    assert stat.S_IMODE((tmp_path / "sockets").stat().st_mode) == 0o700
    with pytest.raises(AddressInUseError) as caught:
        lock_address(bind)
    assert bind in str(caught.value)
    lock.close()
    lock_address(bind).close()


def test_a_lock_that_is_a_link_or_that_the_file_system_lacks_is_refused_by_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "linked.lock").symlink_to(tmp_path / "somewhere")
    with pytest.raises(ConfigError) as caught:
        lock_address(f"unix:{tmp_path}/linked")
    assert "serving.bind" in str(caught.value)
    assert not (tmp_path / "somewhere").exists()

    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", flock)
    # Not that another learner serves there, for which a user would look in vain.
    with pytest.raises(ConfigError) as caught:
        lock_address(f"unix:{tmp_path}/socket")
    assert os.strerror(errno.ENOLCK) in str(caught.value)
