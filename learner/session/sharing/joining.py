"""How this host joins the others of its run, and what they begin with."""

import contextlib
import hashlib
import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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
from learner.hosts.waiting import Clock, StoppedError, Waiting, named
from learner.processes.stop import StopRequest
from learner.serving.hub import Hub
from learner.threads.worker import ClosedError
from seedrl import checkpoints, run_files
from seedrl.checkpoints import Checkpoint
from seedrl.config import OWN_SERVING, Config
from seedrl.config_io import to_json
from seedrl.errors import ConfigError, UserError
from seedrl.programs.command_line import describe
from seedrl.spec_json import encode_spec, saved_spec
from seedrl.specs import EnvSpec
from seedrl.wire.credentials import read_token

# What hosts may have each its own, beside OWN_SERVING.
_OWN = ("launch", "logging")
# How long a file of the first host may take until another one sees it.
_SEEN_SECONDS = 20.0
_LOOK_SECONDS = 0.2
# How long hosts wait for what one of them says before the run begins: the first one may read a
# checkpoint of many GB meanwhile. The others wait longer, for the first one knows who is missing.
_ANSWER_SECONDS = 3600.0
_LONGER_SECONDS = 30.0
# Characters of each text in a hello, which `LONGEST_HELLO_BYTES` limits as a whole.
_LONGEST_TEXT = 2000


@contextlib.contextmanager
def joined(
    place: Place, config: Config, stop: StopRequest, init_from: Path | None = None
) -> Iterator[Hosts]:
    """The hosts of a run, once all are there.

    Args:
      place, config: of this host.
      stop: the run is to end.
      init_from: what decides on the first parameters; has to be the same on all.

    What is raised inside ends the others, too. Raises UserError if they do not come together,
    StoppedError if `stop` is set before.
    """
    if place.num_hosts == 1:
        yield alone()
        return
    if config.learning.schedule != "asynchronous":
        raise ConfigError(
            f"--hosts: learning.schedule {config.learning.schedule} is for one host, where one "
            "thread acts and learns; expected asynchronous"
        )
    common = {**_common(config), "--init-from": str(init_from or "nothing")}
    hello = Hello(place.host_index, place.num_hosts, common)
    waiting = Waiting(stop.is_set, _sayer(place))
    links, address = _links(place, hello, waiting, _token(config, place))
    peers = Peers(place, links)
    try:
        jax_processes.join(place, address, waiting.report)
        yield Hosts(peers, Agenda())
    except StoppedError:
        peers.leave(stop.by)
        raise
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


def require_shared(
    workdir: Path, hosts: Hosts, stop: StopRequest, seconds: float = _SEEN_SECONDS
) -> None:
    """Raises ConfigError if hosts do not see one folder of the run within some seconds.

    Raises StoppedError and HostLostError, too, as what follows: see `_gathered`.
    """
    if hosts.is_alone:
        return
    note, word = workdir / run_files.HOSTS_NOTE, secrets.token_hex(8)
    if hosts.peers.place.is_first:
        note.write_text(word)
    word = _gathered("folder", word, hosts, stop)[0]
    sees = _gathered("sees", _sees(note, word, seconds), hosts, stop)
    missing = [index for index, each in enumerate(sees) if not each]
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


def common_checkpoint(
    found: Checkpoint | None, workdir: Path, hosts: Hosts, stop: StopRequest
) -> Checkpoint | None:
    """What all hosts resume from: what the first one has found."""
    if hosts.is_alone:
        return found
    step = _gathered("resume", None if found is None else found.step, hosts, stop)[0]
    if hosts.peers.place.is_first or step is None:
        return found
    return checkpoints.find(workdir / "checkpoints", step)


def common_word(tag: str, word: bool, hosts: Hosts, stop: StopRequest) -> bool:
    """What the first host says."""
    return bool(_gathered(tag, word, hosts, stop)[0])


def _gathered(
    tag: str,
    value: Any,
    hosts: Hosts,
    stop: StopRequest,
    look: Callable[[], object] = lambda: None,
) -> list[Any]:
    """What all hosts give before the run begins; `look` is called meanwhile, and may raise.

    Raises StoppedError if `stop` is set, also because a host has left: it was stopped, too; and
    HostLostError if one does not answer, though it is alive.
    """
    peers = hosts.peers
    seconds = _ANSWER_SECONDS + (0.0 if peers.place.is_first else _LONGER_SECONDS)
    clock = Clock(Waiting(stop.is_set, _sayer(peers.place), seconds, "answer"))

    def tick() -> None:
        look()
        if missing := peers.waited_for():
            clock.tick(f"waits for an answer of {named(missing)}", missing)

    try:
        return peers.gather(tag, value, tick)
    except ClosedError as error:
        for index, reason in peers.left.items():
            stop.by = stop.by or f"host {index} has ended: {reason}"
        stop.set()
        raise StoppedError from error


class CommonSpec:
    """What environments look like, for all hosts: also for one that no env server has joined.

    Used by the main thread: it waits for a spec, and then settles whether the run uses it.
    """

    def __init__(
        self,
        hub: Hub,
        hosts: Hosts,
        stop: StopRequest,
        look: Callable[[], object] = lambda: None,
    ):
        """`look` is called while other hosts are waited for; may raise."""
        self._hub, self._hosts, self._stop, self._look = hub, hosts, stop, look
        self._num_asked = 0

    def wait(self, timeout: float) -> EnvSpec | None:
        """See `Hub.wait_for_spec`; None, too, if the run is stopped while it waits for other hosts.

        Raises ConfigError if hosts have different ones, HostLostError. A host that leaves ends this
        one, before anything has begun.
        """
        own = self._hub.wait_for_spec(timeout)
        if self._hosts.is_alone:
            return own
        self._num_asked += 1
        text = None if own is None else encode_spec(own)
        try:
            tag = f"spec {self._num_asked}"
            texts = _gathered(tag, text, self._hosts, self._stop, self._look)
        except StoppedError:
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
            fields = {name: value for name, value in fields.items() if name not in OWN_SERVING}
        common[section] = _short(json.dumps(fields, sort_keys=True))
    return common


def _short(text: str) -> str:
    """`text`, or what differs if it does, where it is long."""
    if len(text) <= _LONGEST_TEXT:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{text[:_LONGEST_TEXT]}… (SHA-256 of all of it: {digest})"


def _sayer(place: Place) -> Callable[[str], None]:
    return lambda line: print(f"learner: {place.name} {line}", file=sys.stderr, flush=True)
