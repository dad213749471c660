"""The command line of an env server."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from seedrl.programs.command_line import read
from seedrl.wire.address import address_fault, is_local
from seedrl.wire.version import MOST_GROUPS

PROG = "python -m envs_server"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Step environments on this machine's CPUs for a learner.

    The learner chooses environment and seeds; this side only decides which factories may be built.
    It reconnects until training is over.

    Exit codes: 0 training is over, or SIGTERM or SIGINT; 1 an environment hangs, all stacks are
    printed; 2 wrong arguments, the learner refused this env server, or the environment cannot be
    built here; 75 the environments failed too often. With --processes, only 0 and 2: a process that
    ends otherwise is started again.
    """

    learner: str
    """Address of the learner: host:port or unix:/path."""

    num_envs: int
    """Environments on offer, over all groups; the learner may take fewer."""

    processes: int = 1
    """Env servers to start, each a process with `--num-envs` environments. One that dies is started
    again, after a pause that grows while it keeps dying. Linux only."""

    logs: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder for the output of each env server, env_server_I.log, and for its count of steps sent,
    env_server_I.sent. With it even a single env server is started again when it dies."""

    groups: int = 2
    """Groups that are interleaved: one steps while the others wait for actions. No more than
    there are environments; at most 1000."""

    allow_env: tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]] = ()
    """Shell patterns of factories (package.module:factory), for environments and wrappers, that the
    learner may name beside envs_server.envs.*; registered gymnasium ids are always allowed. What
    a module has only imported from elsewhere needs its own name, no pattern."""

    sent_log: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """File that counts the steps sent, for the learner's ledger. It outlives a killed env server if
    the next one is started with the same file; by default the counts die with the process. With
    --processes each has its own: of a.sent these are a_0.sent, a_1.sent and so on."""

    play: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """A recording to play in place of environments, to a deterministic learner. Actions other
    than those recorded are an error; at its end the env server waits."""

    token_file: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """File with the token that the learner asks for (its serving.token_file)."""

    authority: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """PEM file of the authority of the learner's certificate: ca.pem of `seedrl certificates`. With
    it the connection is TLS."""

    certificate: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """PEM file of this env server's own certificate, if the learner asks for one."""

    private_key: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """PEM file of its key."""

    insecure: bool = False
    """Send a token to another machine without TLS, where others may read it."""

    local_link: bool = True
    """To a learner of this host (and network namespace), send steps through a socket of the kernel,
    and leave only the lease to gRPC."""

    def __post_init__(self) -> None:
        if fault := address_fault(self.learner, lowest_port=1):
            raise ValueError(f"--learner: {fault}")
        if self.groups < 1 or self.num_envs < 1:
            raise ValueError(
                "expected at least one environment and one group, "
                f"got --num-envs {self.num_envs} --groups {self.groups}"
            )
        self._check_processes()
        if self.groups > MOST_GROUPS:
            raise ValueError(f"--groups: expected at most {MOST_GROUPS}, got {self.groups}")
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("--certificate and --private-key: expected both or none")
        if self.certificate is not None and self.authority is None:
            raise ValueError("--certificate: expected --authority with it")
        if self.token_file and not (self.authority or self.insecure or is_local(self.learner)):
            raise ValueError(
                f"--token-file: others may read on the way to {self.learner}; expected --authority "
                "(TLS), or --insecure on a network that you trust"
            )

    def _check_processes(self) -> None:
        if self.processes < 1:
            raise ValueError(f"--processes: expected at least 1, got {self.processes}")
        if self.processes > 1 and self.play:
            raise ValueError(f"--processes: expected 1 with --play, got {self.processes}")
        if self.processes > 1 and sys.platform != "linux":
            raise ValueError(
                f"--processes: expected 1 on {sys.platform}, got {self.processes}; start as many "
                "env servers by hand"
            )

    @property
    def num_groups(self) -> int:
        """Groups that are asked for: none is empty."""
        return min(self.groups, self.num_envs)

    @property
    def allowed(self) -> tuple[str, ...]:
        """All patterns of `allow_env`."""
        return tuple(pattern for patterns in self.allow_env for pattern in patterns)


def read_options(words: Sequence[str] | None = None) -> Options:
    """Parses a command line, by default this process's own. Raises ConfigError if it is wrong."""
    return read(Options, words, prog=PROG)
