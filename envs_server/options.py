"""The command line of an env server."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from seedrl.errors import ConfigError
from seedrl.programs.command_line import read
from seedrl.programs.flags import Mark
from seedrl.wire.contract import MOST_GROUPS, address_fault, is_local

PROG = "python -m envs_server"
_MOST_ENVS = 1_000_000  # lists of that length are made


@dataclass(frozen=True, kw_only=True)
class Options:
    """Step environments on this machine's CPUs for a learner.

    The learner chooses environment and seeds; --allow-env decides which factories may be built. The
    env server reconnects until training is over.

    Example: python -m envs_server --learner 127.0.0.1:8686 --num-envs 32 --token-file token

    Exit codes: 0 training is over, or SIGTERM or SIGINT; 1 an environment hangs, all stacks are
    printed; 2 wrong arguments, the learner refused this env server, or the environment cannot be
    built here; 75 the environments failed too often, or the learner refused a message after it had
    answered steps. With --processes, only 0 and 2: a process that ends otherwise is restarted.

    Attributes:
      learner: address of the learner: host:port or unix:/path.
      num_envs: environments, over all groups.
      processes: env servers to start and restart.
      logs: directory for the output of the env servers (4 MiB each). With it a single env server is
        restarted too.
      groups: groups that are stepped alternately.
      allow_env: shell patterns of the factories (package.module:factory) of environments and
        wrappers that the learner may name, in addition to envs_server.envs.*. Registered gymnasium
        ids are always allowed. A factory that a module only imports must be named in full,
        without wildcards.
      token_file: file with the learner's token.
      authority: PEM file of the authority of the learner's certificate.
      certificate: PEM file of this env server's certificate.
      private_key: PEM file of the certificate's key.
      insecure: send a token to another machine without TLS.
      local_link: use a Unix socket instead of gRPC if the learner runs on this host.
    """

    learner: Annotated[str, Mark("ADDRESS")]
    num_envs: int
    processes: int = 1
    logs: Path | None = None  # each env server has its own file there: lines of two never mix
    groups: int = 2  # one steps while the learner computes the actions of the other
    allow_env: Annotated[tuple[str, ...], Mark("PATTERN", action="extend")] = ()
    token_file: Path | None = None  # a file, because others can read a command line
    authority: Path | None = None
    certificate: Path | None = None
    private_key: Path | None = None
    insecure: bool = False
    local_link: bool = True

    def __post_init__(self) -> None:
        if fault := _fault(self):
            raise ConfigError(fault)


def read_options(words: Sequence[str] | None = None) -> Options:
    """Parses a command line, by default this process's own. Raises ConfigError if it is wrong."""
    return read(Options, words, prog=PROG)


def _fault(options: Options) -> str:
    """Flags that do not go together, in one line; "" if all do."""
    if fault := address_fault(options.learner, lowest_port=1):
        return f"--learner: expected {fault}, got {options.learner!r}"
    least = min(options.num_envs, options.groups, options.processes)
    if least < 1 or options.num_envs > _MOST_ENVS or options.groups > MOST_GROUPS:
        return (
            f"expected --num-envs of 1 to {_MOST_ENVS:,}, --processes of at least 1, --groups of 1 "
            f"to {MOST_GROUPS}"
        )
    # A child that ends with its supervisor, and the orphans of a child, need prctl.
    if sys.platform != "linux" and (options.processes > 1 or options.logs):
        return "--processes and --logs: Linux only"
    if (options.certificate is None) != (options.private_key is None):
        return "--certificate and --private-key: expected both or none"
    # Without an authority there is no TLS, and nothing would ever ask for the certificate.
    if options.certificate and not options.authority:
        return "--certificate: expected --authority with it"
    if options.token_file and not (
        options.authority or options.insecure or is_local(options.learner)
    ):
        return (
            f"--token-file: others may read on the way to {options.learner}; expected --authority "
            "(TLS), or --insecure on a network that you trust"
        )
    return ""
