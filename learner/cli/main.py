"""The `seedrl` command: finds the sub-command and leaves the rest to it."""

import importlib
import os
import signal
import sys
from collections.abc import Sequence

from seedrl.programs.signals import end_on_signals, ending_signals

# Each is a module of this package with `run(argv)`, which returns the exit code and is imported
# only when it is called; these are functions of the command's name in another command's module.
_ELSEWHERE = {
    "resume": "train",
    **dict.fromkeys(("runs", "checkpoints", "digest", "export"), "folders"),
}
# Programs of the env servers, which the learner never imports: this process becomes one of them.
_CHECKERS = {"check-env": "envs_server.check", "check-env-server": "envs_server.check.server"}
_OWN_HANDLERS = ("train", "resume")  # of signals; see `learner.processes.stop`
GROUPS = {
    "Train": {
        "train": "train on this machine: a learner and its env servers",
        "pretrain": "warm start of a token policy on solutions",
        "resume": "continue a run with its own configuration",
        "configs": "list the bundled configurations, or describe one",
        "experiment": "train a grid of configurations, options and seeds",
    },
    "Look at runs": {
        "watch": "show runs on a dashboard in the browser",
        "runs": "list the runs in a directory",
        "compare": "compare runs over seeds, with intervals and learning curves",
        "checkpoints": "list and verify the checkpoints of a run",
        "digest": "print SHA-256 sums of a run's parameters and replay",
    },
    "Use a trained policy": {
        "evaluate": "play a checkpoint of a run",
        "record": "record videos of a run's policy",
        "export": "write a policy as one file that needs only jax and flatbuffers",
    },
    "Check your own code and this machine": {
        "check-env": "check your own environment before training",
        "check-env-server": "check an env server in any language against the contract",
        "balance": "predict how many env servers a run needs, then measure it",
        "tune": "find env servers, groups and batches that are fast on this machine",
        "bounds": "find the slower side of a run: acting or learning",
        "bench": "compare this machine's speed with its limits",
    },
    "Several machines": {
        "launch": "run on a Ray cluster",
        "certificates": "create a token and certificates for several machines",
    },
}
COMMANDS = {name: purpose for group in GROUPS.values() for name, purpose in group.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a sub-command; returns its exit code (`seedrl.exit_codes.ExitCode`)."""
    arguments = sys.argv[1:] if argv is None else argv
    if argv is None:
        end_on_signals()
    # Only now: Ctrl-C is answered from here on.
    from learner.processes.stop import end_with
    from seedrl.programs.outcome import exit_code

    if argv is None and "".join(arguments[:1]) not in _OWN_HANDLERS:
        # As Ctrl-C does: else temporary folders would stay.
        for number in ending_signals():
            signal.signal(number, signal.default_int_handler)
    code = exit_code(lambda: _run(arguments), prog="seedrl")
    if argv is None:  # else the process continues
        end_with(code)
    return code


def _run(argv: Sequence[str]) -> int:
    if argv[:1] == ["help"]:  # of a command: `seedrl help train`
        argv = [*argv[1:2], "--help"]
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: seedrl COMMAND ...")
        for title, commands in GROUPS.items():
            print(f"\n{title}:")
            for name, purpose in commands.items():
                print(f"  {name:<16}  {purpose}")
        print("\nFirst run:   seedrl train cartpole_r2d2")
        print("One command: seedrl COMMAND --help. Version: seedrl --version")
        return 0
    # Imports argparse and more, which `seedrl --help` needs not wait for.
    from seedrl.errors import ConfigError
    from seedrl.hints import did_you_mean
    from seedrl.programs.help import print_version_if_asked

    print_version_if_asked(argv)
    name = argv[0]
    if name not in COMMANDS and name != "complete":  # which a shell types
        hint = did_you_mean(name, COMMANDS)
        raise ConfigError(f"unknown command {name!r:.200}{hint} (see seedrl --help)")
    if name in _CHECKERS:
        os.execv(sys.executable, [sys.executable, "-m", _CHECKERS[name], *argv[1:]])
    module = _ELSEWHERE.get(name, name.replace("-", "_"))
    command = importlib.import_module(f"learner.cli.{module}")
    code: int = getattr(command, name if name in _ELSEWHERE else "run")(argv[1:])
    return code


if __name__ == "__main__":
    sys.exit(main())
