"""One run of atheris in a process of its own, and what it says of it in the end."""

import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from learner.bench.machine import commit, in_words
from tests.benchmarks.peers import virtual_environment
from tests.fuzz.records import FuzzRecord
from tests.fuzz.target import Target

ROOT = Path(__file__).parents[2]
# One input may take that long; then it hangs.
_HANG_SECONDS = 20
# Of one input: whoever announces much must not get it.
_MOST_MIB = 2048
_LONGEST_INPUT = 2**13


def default_venvs() -> Path:
    """Where the virtual environment of atheris is."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "seedrl-fuzz"


def run(target: Target, num_inputs: int, corpus: Path, crashes: Path, venvs: Path) -> FuzzRecord:
    """Gives the target so many inputs.

    `corpus` holds, and receives, inputs that reached something new; those that broke a promise are
    written to `crashes`. Raises RuntimeError if atheris cannot be installed, or does not run.
    """
    interpreter = virtual_environment.python("atheris", venvs, Path(__file__).parent)
    corpus.mkdir(parents=True, exist_ok=True)
    crashes.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed_{number}").write_bytes(seed)
    before = set(crashes.iterdir())
    command = [str(interpreter), "-m", "tests.fuzz.coverage_guided", target.name, str(corpus)]
    command += [f"-runs={num_inputs}", f"-max_len={_LONGEST_INPUT}", f"-timeout={_HANG_SECONDS}"]
    command += [f"-rss_limit_mb={_MOST_MIB}", f"-artifact_prefix={crashes}/"]
    command += ["-print_final_stats=1", "-verbosity=1"]
    start = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        code = subprocess.run(command, cwd=ROOT, env=_variables(), stderr=output).returncode
        output.seek(0)
        said = output.read()
    num_crashes = len(set(crashes.iterdir()) - before)
    if num_crashes or code:
        print(said[-8000:], file=sys.stderr)
    if code and not num_crashes:
        raise RuntimeError(f"atheris ended with {code}")
    return FuzzRecord(
        target=target.name,
        engine="atheris",
        **figures(said),
        crashes=num_crashes,
        seconds=round(time.monotonic() - start, 1),
        commit=commit() or "unknown",
        date=datetime.now(UTC).date().isoformat(),
        machine=in_words(),
    )


def _variables() -> Mapping[str, str]:
    # atheris alone is installed there: everything else is what we run on.
    paths = (str(ROOT), sysconfig.get_path("purelib"))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "JAX_PLATFORMS": "cpu"}


def figures(said: str) -> dict[str, int]:
    """The figures in what libFuzzer printed; 0 for what it did not say."""
    stats = dict(re.findall(r"^stat::(\w+):\s+(\d+)", said, re.MULTILINE))
    edges = re.findall(r"\bcov: (\d+)", said)
    kept = re.findall(r"\bcorp: (\d+)", said)
    return {
        "inputs": int(stats.get("number_of_executed_units", 0)),
        "edges": int(edges[-1]) if edges else 0,
        "kept": int(kept[-1]) if kept else 0,
        "peak_rss_mib": int(stats.get("peak_rss_mb", 0)),
    }
