"""Entry point of the checker: `python -m envs_server.conformance ENVIRONMENT`.

Exit codes: 0 the environment passes, maybe with notes; 2 wrong arguments, or the environment cannot
be built here; 3 it breaks a rule; 70 a defect of the checker; 143 interrupted.
"""

import contextlib
import sys

from envs_server.conformance.options import PROG, Options, read_options
from seedrl.exit_codes import ExitCode
from seedrl.programs.outcome import exit_code


def main(arguments: list[str] | None = None) -> int:
    """Checks the environment that the command line names and prints a report; the exit code."""
    return exit_code(lambda: _check(read_options(arguments)), prog=PROG)


def _check(options: Options) -> ExitCode:
    # Import gymnasium: here it is said in one line if that is not installed.
    from envs_server.building import choose
    from envs_server.conformance import report
    from envs_server.conformance.check import Plan, check
    from envs_server.recipe import read_recipe
    from seedrl.wire.seedrl_pb2 import Environment

    environment = Environment(
        id=options.environment,
        arguments=options.arguments,
        wrappers=options.wrapper_names,
        vectorization=options.vectorization,
    )
    # Whatever the environment prints must not end up in the report.
    with contextlib.redirect_stdout(sys.stderr):
        recipe = read_recipe(environment, options.allowed)
        back_end = choose(recipe, options.vectorization)
        plan = Plan(back_end, options.num_envs, options.steps, options.seed)
        found = check(recipe, plan)
    write = report.as_json if options.json else report.text
    print(write(options.environment, plan, found))
    return ExitCode.OK if found.passes else ExitCode.BROKEN_ENVIRONMENT


if __name__ == "__main__":
    sys.exit(main())
