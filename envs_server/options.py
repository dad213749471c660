"""The command line of an env server."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from seedrl.errors import ConfigError
from seedrl.wire.contract import MOST_GROUPS, address_fault, is_local

PROG = "python -m envs_server"
_ABOUT = """Step environments on this machine's CPUs for a learner.

The learner chooses environment and seeds; --allow-env decides which factories may be built. The
env server reconnects until training is over.

Example: python -m envs_server --learner 127.0.0.1:8686 --num-envs 32 --token-file token

Exit codes: 0 training is over, or SIGTERM or SIGINT; 1 an environment hangs, all stacks are
printed; 2 wrong arguments, the learner refused this env server, or the environment cannot be built
here; 75 the environments failed too often. With --processes, only 0 and 2: a process that ends
otherwise is restarted."""

Options = argparse.Namespace


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (see {PROG} --help)")


def read_options(words: Sequence[str] | None = None) -> Options:
    """Parses a command line, by default this process's own. Raises ConfigError if it is wrong.

    The options have the names of the flags, and `num_groups`, of which none is empty.
    """
    parser = _Parser(
        PROG,
        usage=f"{PROG} --learner ADDRESS --num-envs N [options]",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # a new option would change what an abbreviation in a script means
    )
    add: Any = parser.add_argument
    number = {"type": int, "metavar": "N"}
    file = {"type": Path, "metavar": "PATH"}
    add(
        "--learner",
        required=True,
        metavar="ADDRESS",
        help="address of the learner: host:port or unix:/path (required)",
    )
    add("--num-envs", required=True, **number, help="environments, over all groups (required)")
    add("--processes", default=1, **number, help="env servers to start and restart (default: 1)")
    add(
        "--logs",
        **file,
        help="directory for the output of the env servers (4 MiB each) and their counts; with it a "
        "single env server is restarted too",
    )
    add("--groups", default=2, **number, help="groups that are stepped alternately (default: 2)")
    add(
        "--allow-env",
        action="extend",
        nargs="+",
        default=[],
        metavar="PATTERN",
        help="shell patterns of the factories (package.module:factory) of environments and "
        "wrappers that the learner may name, in addition to envs_server.envs.*; registered "
        "gymnasium ids are always allowed. A name that a module imports from elsewhere must be "
        "given in full",
    )
    add("--notes", **file, help=argparse.SUPPRESS)  # a supervisor's, for its children
    add("--token-file", **file, help="file with the learner's token")
    add("--authority", **file, help="PEM file of the authority of the learner's certificate")
    add("--certificate", **file, help="PEM file of this env server's certificate")
    add("--private-key", **file, help="PEM file of its key")
    add("--insecure", action="store_true", help="send a token to another machine without TLS")
    add(
        "--local-link",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="use a Unix socket instead of gRPC if the learner runs on this host (default)",
    )
    options = parser.parse_args(words)
    if fault := _fault(options):
        parser.error(fault)
    # A group of no environment would send no step, and be taken for one that hangs.
    options.num_groups = min(options.groups, options.num_envs)
    options.allow_env = tuple(options.allow_env)
    return options


def _fault(options: Options) -> str:
    """Flags that do not go together, in one line; "" if all do."""
    if fault := address_fault(options.learner, lowest_port=1):
        return f"--learner: {fault}"
    least = min(options.num_envs, options.groups, options.processes)
    if least < 1 or options.groups > MOST_GROUPS:
        return f"expected --num-envs and --processes of at least 1, --groups of 1 to {MOST_GROUPS}"
    if sys.platform != "linux" and (options.processes > 1 or options.logs):
        return "--processes and --logs: Linux only"
    if (options.certificate is None) != (options.private_key is None):
        return "--certificate and --private-key: expected both or none"
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
