"""Runs one target under atheris: inputs that reach new code are kept, and changed further.

    python -m tests.tools.fuzz.coverage_guided TARGET CORPUS -runs=1000000 ...

All but the first argument are libFuzzer's. Runs in the virtual environment that
`python -m tests.tools.fuzz` makes.
"""

import logging
import sys

import atheris

with atheris.instrument_imports(include=["seedrl", "envs_server", "learner"]):
    from tests.tools.fuzz.targets import TARGETS


def main() -> None:
    """Ends with 77 after the first input that breaks a promise, and writes it to a file."""
    target = TARGETS[sys.argv.pop(1)]
    # What is refused is logged, a million times.
    logging.disable(logging.CRITICAL)
    atheris.Setup(sys.argv, target.check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
