"""Entry point of an env server: `python -m envs_server --learner ADDRESS --num-envs E`.

Exit codes: 0 training is over, or SIGTERM or SIGINT; 2 wrong arguments, the learner refused
this env server, or the environment cannot be built here; 4 the environment failed too often;
6 it was to film, and a film cannot be written.
"""

import sys
from collections.abc import Sequence

from envs_server.options import PROG, read_options
from seedrl.programs.command_line import print_version_if_asked
from seedrl.programs.outcome import exit_code, leave


def main(argv: Sequence[str] | None = None) -> None:
    """Runs an env server until its work is over, and exits the process with its code."""
    words = sys.argv[1:] if argv is None else argv
    leave(exit_code(lambda: _serve(words), prog=PROG))


def _serve(words: Sequence[str]) -> int:
    print_version_if_asked(words)
    options = read_options(words)
    # Import numpy and gRPC: only once the command line is known to be good.
    if options.processes == 1 and options.logs is None:
        from envs_server.processes.one import serve

        return serve(options, words)
    from envs_server.processes.many import Many

    with Many(options, words) as many:
        return many.wait()


if __name__ == "__main__":
    main()
