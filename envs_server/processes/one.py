"""An env server in this process."""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from envs_server.connection import Offer
from envs_server.faults import self_restart
from envs_server.faults.crash_log import CrashLog, is_suspect, quarantine_after
from envs_server.faults.keeper import Keeper
from envs_server.options import Options
from envs_server.reconnecting_client import ReconnectingClient
from envs_server.sent_log import SentLog
from envs_server.stop import Stop
from seedrl.errors import ConfigError
from seedrl.programs.farewell import ENDED_VARIABLE
from seedrl.wire.credentials import Certificates, read_token
from seedrl.wire.recording import Recording


def crash_log_of(sent_log: Path) -> Path:
    """The file of the crash log that goes with a log of sent steps."""
    return Path(f"{sent_log}.crash")


def serve(options: Options, words: Sequence[str]) -> int:
    """Steps environments until the learner or a signal ends that; returns the exit code.

    For the main thread. `words` are the command line by which the process may begin again. Raises
    ConfigError for a file that cannot be read.
    """
    logging.basicConfig(
        level=options.log_level.upper(),
        format="%(asctime)s env server %(process)d: %(message)s",
        stream=sys.stderr,
    )
    stop = Stop()
    stop.install()
    with _naming("--play"):
        recording = None if options.play is None else Recording(options.play)
    with _naming("--sent-log"):
        sent_log = SentLog(options.sent_log)
        crash_log = CrashLog(options.sent_log and crash_log_of(options.sent_log))
    with _naming("--token-file"):
        token = "" if options.token_file is None else read_token(options.token_file)
    kind = (options.films, options.group_threads, options.niceness)
    certificates = Certificates(options.certificate, options.private_key, options.authority)
    client = ReconnectingClient(
        options.learner,
        Offer(options.num_envs, options.num_groups, options.allowed, recording, *kind),
        stop,
        options.max_message_bytes,
        sent_log,
        local_link=options.local_link,
        token=token,
        credentials=certificates.of_client(),
    )
    self_restart.say_lock_ups()
    ended, own = os.environ.get(ENDED_VARIABLE, ""), self_restart.take_remembered()
    keeper = Keeper(
        quarantine_after(options.num_envs, crash_log, own, ended),
        start_again=self_restart.starter(words),
        allow_computing=self_restart.allow_computing,
        max_memory_mib=options.max_memory_mib,
        note=crash_log.note if is_suspect(ended) else None,
        farewell=crash_log.say_farewell,
        films=options.films is not None,
    )
    return client.run(keeper)


@contextlib.contextmanager
def _naming(flag: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise ConfigError(f"{flag}: {error}") from error
