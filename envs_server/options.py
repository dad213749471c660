"""The command line of an env server."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from seedrl.errors import ConfigError
from seedrl.wire.contract import MOST_GROUPS, address_fault, is_local

PROG = "python -m envs_server"
_ABOUT = """Step environments on this machine's CPUs for a learner.

The learner chooses environment and seeds; this side only decides which factories may be built. It
reconnects until training is over.

Exit codes: 0 training is over, or SIGTERM or SIGINT; 1 an environment hangs, all stacks are
printed; 2 wrong arguments, the learner refused this env server, or the environment cannot be built
here; 75 the environments failed too often. With --processes, only 0 and 2: a process that ends
otherwise is started again."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags, by the names of `--help`. Raises ValueError for those that do not go together."""

    learner: str
    num_envs: int
    processes: int
    logs: Path | None
    groups: int
    allow_env: tuple[str, ...]
    sent_log: Path | None
    play: Path | None
    token_file: Path | None
    authority: Path | None
    certificate: Path | None
    private_key: Path | None
    insecure: bool
    local_link: bool

    def __post_init__(self) -> None:
        if fault := address_fault(self.learner, lowest_port=1):
            raise ValueError(f"--learner: {fault}")
        if min(self.num_envs, self.groups, self.processes) < 1 or self.groups > MOST_GROUPS:
            raise ValueError(
                f"expected --num-envs and --processes of at least 1, --groups of 1 to {MOST_GROUPS}"
            )
        if self.processes > 1 and self.play:
            raise ValueError(f"--processes: expected 1 with --play, got {self.processes}")
        if sys.platform != "linux" and (self.processes > 1 or self.logs or self.sent_log):
            raise ValueError("--processes, --logs and --sent-log: Linux only")
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("--certificate and --private-key: expected both or none")
        if self.certificate is not None and self.authority is None:
            raise ValueError("--certificate: expected --authority with it")
        if self.token_file and not (self.authority or self.insecure or is_local(self.learner)):
            raise ValueError(
                f"--token-file: others may read on the way to {self.learner}; expected --authority "
                "(TLS), or --insecure on a network that you trust"
            )

    @property
    def num_groups(self) -> int:
        """Groups that are asked for: none is empty."""
        return min(self.groups, self.num_envs)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (see {PROG} --help)")


def read_options(words: Sequence[str] | None = None) -> Options:
    """Parses a command line, by default this process's own. Raises ConfigError if it is wrong."""
    parser = _Parser(
        PROG,
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--learner", required=True, help="address of the learner: host:port or unix:/path")
    add("--num-envs", type=int, required=True, help="environments on offer, over all groups")
    add("--processes", type=int, default=1, help="env servers to start, and to restart")
    add("--logs", type=Path, help="folder for their output and counts; restarts also a single one")
    add("--groups", type=int, default=2, help="one is stepped while the others wait for actions")
    add(
        "--allow-env",
        action="extend",
        nargs="+",
        default=[],
        metavar="PATTERN",
        help="shell patterns of factories (package.module:factory), for environments and wrappers, "
        "that the learner may name beside envs_server.envs.*; registered gymnasium ids are always "
        "allowed. What a module has only imported from elsewhere needs its own name, no pattern",
    )
    add("--sent-log", type=Path, help="file that counts the steps sent, and outlives a kill")
    add("--play", type=Path, help="recording to play, to a deterministic learner")
    add("--token-file", type=Path, help="file with the learner's serving.token_file's token")
    add("--authority", type=Path, help="PEM file of the authority of the learner's certificate")
    add("--certificate", type=Path, help="PEM file of this env server's own certificate")
    add("--private-key", type=Path, help="PEM file of its key")
    add("--insecure", action="store_true", help="send a token to another machine without TLS")
    add(
        "--local-link",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="steps take a socket of the kernel to a learner of this host",
    )
    found = vars(parser.parse_args(words))
    try:
        return Options(**{**found, "allow_env": tuple(found["allow_env"])})
    except ValueError as error:
        parser.error(str(error))
