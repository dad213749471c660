"""How this host joins the others of its run, and what they begin with."""

import contextlib
import hashlib
import json
import os
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jax

from learner.hosts import jax_processes
from learner.hosts.agenda import Agenda, Hosts, alone
from learner.hosts.dialing import dial
from learner.hosts.hello import Hello
from learner.hosts.meeting import receive_all
from learner.hosts.messages import MessageSocket
from learner.hosts.peers import Peers
from learner.hosts.place import Place
from learner.hosts.proof import Token
from learner.hosts.waiting import StoppedError, Waiting
from learner.serving.hub import Hub
from learner.session.process import StopRequest
from learner.threads.worker import ClosedError
from seedrl.config import Config
from seedrl.config_json import to_json
from seedrl.errors import ConfigError, HostLostError, UserError
from seedrl.programs import unbegun
from seedrl.programs.version import describe
from seedrl.spec_json import encode_spec, saved_spec
from seedrl.specs import EnvSpec
from seedrl.storage import checkpoints, run_files
from seedrl.storage.checkpoints import Checkpoint
from seedrl.wire.credentials import read_token

# What hosts may have each its own.
_OWN = ("launch", "logging")
_OWN_SERVING = ("bind", "token_file", "certificate", "private_key", "authority", "insecure")
# How long a file of the first host may take until another one sees it.
_SEEN_SECONDS = 20.0
_LOOK_SECONDS = 0.2
# Characters of each text in a hello, which `LONGEST_HELLO_BYTES` limits as a whole.
_LONGEST_TEXT = 2000


@contextlib.contextmanager
def joined(
    place: Place, config: Config, stop: StopRequest, init_from: Path | None = None
) -> Iterator[Hosts | None]:
    """The hosts of a run, once all are there; None if `stop` is set before.

    Args:
      place, config: of this host.
      stop: the run is to end.
      init_from: what decides on the first parameters; has to be the same on all.

    What is raised inside ends the others, too. Raises UserError if they do not come together.
    """
    if place.num_hosts == 1:
        yield alone()
        return
    if config.learning.regime != "asynchronous":
        raise ConfigError(
            f"--hosts: learning.regime {config.learning.regime} is for one host, where one thread "
            "acts and learns; expected asynchronous"
        )
    common = {**_common(config), "--init-from": str(init_from or "nothing")}
    hello = Hello(place.host_index, place.num_hosts, common)
    waiting = Waiting(stop.is_set, lambda line: _say(f"{place.name} {line}"))
    try:
        links, address = _links(place, hello, waiting, _token(config, place))
    except StoppedError:
        _say(unbegun.line(stop.by, stop.command))
        yield None
        return
    peers = Peers(place, links)
    try:
        jax_processes.join(place, address, waiting.report)
        yield Hosts(peers, Agenda())
    except ClosedError as error:
        peers.close()
        index, reason = next(iter(peers.left.items()), (0, "it is gone"))
        raise HostLostError(f"host {index} of {place.num_hosts} has left: {reason}") from error
    except UserError as error:
        peers.fail(str(error))
        raise
    except BaseException as error:
        peers.fail(f"{type(error).__name__}: {error}")
        raise
    peers.leave(stop.by or "the run is over")


def own_folder(workdir: Path, place: Place) -> Path:
    """Where this host writes of itself: the first one in the run's folder, others below it."""
    return workdir if place.is_first else workdir / run_files.HOSTS / str(place.host_index)


def require_shared(workdir: Path, hosts: Hosts, seconds: float = _SEEN_SECONDS) -> None:
    """Raises ConfigError if hosts do not see one folder of the run within some seconds."""
    if hosts.is_alone:
        return
    note, word = workdir / run_files.HOSTS_NOTE, secrets.token_hex(8)
    if hosts.peers.place.is_first:
        note.write_text(word)
    word = hosts.peers.gather("folder", word)[0]
    sees = _sees(note, word, seconds)
    missing = [index for index, each in enumerate(hosts.peers.gather("sees", sees)) if not each]
    if missing:
        raise ConfigError(
            f"--workdir: expected one folder that all hosts share, but {workdir} of host "
            f"{missing[0]} is another one than that of host 0"
        )


def _sees(note: Path, word: str, seconds: float) -> bool:
    """Whether the file says so, soon: what another machine writes a network file system may hide.

    NFS keeps for up to a minute what it has last heard of a folder; listing that asks again.
    """
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError):
            os.listdir(note.parent)
            if note.read_text() == word:
                return True
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)


def common_checkpoint(found: Checkpoint | None, workdir: Path, hosts: Hosts) -> Checkpoint | None:
    """What all hosts resume from: what the first one has found."""
    if hosts.is_alone:
        return found
    step = hosts.peers.gather("resume", None if found is None else found.step)[0]
    if hosts.peers.place.is_first or step is None:
        return found
    return checkpoints.find(workdir / "checkpoints", step)


def common_word(tag: str, word: bool, hosts: Hosts) -> bool:
    """What the first host says."""
    return bool(hosts.peers.gather(tag, word)[0])


class CommonSpec:
    """What environments look like, for all hosts: also for one that no env server has joined.

    Used by the main thread: it waits for a spec, and then settles whether the run uses it.
    """

    def __init__(self, hub: Hub, hosts: Hosts, stop: StopRequest):
        self._hub, self._hosts, self._stop = hub, hosts, stop
        self._num_asked = 0

    def wait(self, timeout: float) -> EnvSpec | None:
        """See `Hub.wait_for_spec`. Raises ConfigError if hosts have different ones.

        A host that leaves ends this one, before anything has begun.
        """
        own = self._hub.wait_for_spec(timeout)
        if self._hosts.is_alone:
            return own
        self._num_asked += 1
        text = None if own is None else encode_spec(own)
        try:
            texts = self._hosts.peers.gather(f"spec {self._num_asked}", text)
        except ClosedError:
            for index, reason in self._hosts.peers.left.items():
                self._stop.by = f"host {index} has ended: {reason}"
            self._stop.set()
            return None
        found = next((each for each in texts if each is not None), None)
        if found is None:
            return None
        spec = saved_spec(found)
        # One that has joined since it was asked for may have brought another one, too.
        own = self._hub.wait_for_spec(0.0, spec)
        if own is not None and (difference := spec.difference(own)):
            raise ConfigError(
                f"environment: expected the same on all hosts, got {'; '.join(difference)}; is "
                "another version of it installed there?"
            )
        return own

    def settle(self, reason: str = "") -> bool:
        """See `Hub.settle_spec`; whether to wait for another one, which several hosts never do.

        The others may use it, and would wait for this host without an end.
        """
        is_open = self._hub.settle_spec(reason)
        return is_open and self._hosts.is_alone


def _token(config: Config, place: Place) -> Token:
    """By which hosts know each other. Raises ConfigError if there is none where one is needed."""
    serving = config.serving
    if serving.token_file:
        return Token(read_token(Path(serving.token_file)))
    if not serving.insecure:
        raise ConfigError(
            f"--coordinator: whoever reaches {place.coordinator} could take a host's place; set "
            "serving.token_file (--token-file), the same on all hosts, or serving.insecure on a "
            "network that you trust"
        )
    return Token()


def _links(
    place: Place, hello: Hello, waiting: Waiting, token: Token
) -> tuple[dict[int, MessageSocket], str]:
    """The connections of this host, and the address at which jax joins."""
    if not place.is_first:
        link, welcome = dial(place, hello, waiting, token)
        return {0: link}, str(welcome["jax"])
    address = ""

    def welcome_all() -> dict[str, str]:
        nonlocal address
        address = jax_processes.free_address(place)  # as late as can be: it may be taken again
        return {"jax": address}

    return receive_all(place, hello, waiting, token, welcome_all), address


def _common(config: Config) -> dict[str, str]:
    """What must be the same on all hosts, by the names of its fields."""
    values = json.loads(to_json(config))["config"]
    common = {"versions": f"{describe()}, jax {jax.__version__}"}
    for section, fields in values.items():
        if section in _OWN:
            continue
        if section == "serving":
            fields = {name: value for name, value in fields.items() if name not in _OWN_SERVING}
        common[section] = _short(json.dumps(fields, sort_keys=True))
    return common


def _short(text: str) -> str:
    """`text`, or what differs if it does, where it is long."""
    if len(text) <= _LONGEST_TEXT:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{text[:_LONGEST_TEXT]}… (SHA-256 of all of it: {digest})"


def _say(line: str) -> None:
    print(f"learner: {line}", file=sys.stderr, flush=True)
