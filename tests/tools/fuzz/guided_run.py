"""One run of atheris in a process of its own, and what it says of it in the end."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.benchmarks.peers import virtual_environment
from tests.tools.fuzz.target import Target

ROOT = Path(__file__).parents[3]
# One input may take that long; then it hangs.
_HANG_SECONDS = 20
# Of one input: whoever announces much must not get it.
_MOST_MIB = 2048
_LONGEST_INPUT = 2**13


def default_venvs() -> Path:
    """Where the virtual environment of atheris is."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "seedrl-fuzz"


def run(target: Target, num_inputs: int, corpus: Path, crashes: Path, venvs: Path) -> bool:
    """Gives the target so many inputs; returns False if one of them broke a promise.

    `corpus` holds, and receives, inputs that reached something new; those that broke a promise are
    written to `crashes`. Raises RuntimeError if atheris cannot be installed, or does not run.
    """
    interpreter = virtual_environment.python("atheris", venvs, Path(__file__).parent)
    corpus.mkdir(parents=True, exist_ok=True)
    crashes.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed_{number}").write_bytes(seed)
    before = set(crashes.iterdir())
    command = [str(interpreter), "-m", "tests.tools.fuzz.coverage_guided", target.name, str(corpus)]
    command += [f"-runs={num_inputs}", f"-max_len={_LONGEST_INPUT}", f"-timeout={_HANG_SECONDS}"]
    command += [f"-rss_limit_mb={_MOST_MIB}", f"-artifact_prefix={crashes}/", "-verbosity=1"]
    with tempfile.TemporaryFile("w+") as output:
        code = subprocess.run(command, cwd=ROOT, env=_variables(), stderr=output).returncode
        output.seek(0)
        log = output.read()
    num_crashes = len(set(crashes.iterdir()) - before)
    if num_crashes or code:
        print(log[-8000:], file=sys.stderr)
    if code and not num_crashes:
        raise RuntimeError(f"atheris ended with {code}")
    edges = re.findall(r"\bcov: (\d+)", log)
    reached = f"{edges[-1]} edges reached" if edges else "no figures"
    print(f"{target.name}: {num_inputs:,} inputs, {num_crashes} broke a promise, {reached}")
    return not num_crashes


def _variables() -> Mapping[str, str]:
    # Only atheris is installed there: everything else comes from this Python's own folders.
    paths = (str(ROOT), *(path for path in sys.path if path.endswith("site-packages")))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "JAX_PLATFORMS": "cpu"}
