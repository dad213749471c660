"""What no file of the repository may contain."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("seedrl", "envs_server", "learner")
# Where time passes that something depends on. The rest writes down when things were.
TIMED = (
    *("seedrl", "envs_server", ":(glob)learner"),
    *(f"learner/{name}" for name in ("acting", "learning", "multihost", "processes")),
    *(f"learner/{name}" for name in ("runtime", "serving")),
)

# What turns bytes from elsewhere into running code.
UNSAFE = re.compile(
    r"^\s*(?:import|from) (?:cloudpickle|dill|joblib|jsonpickle|marshal|pickle|shelve|runpy)\b"
    r"|(?<![\w.\"])(?:eval|exec|compile|__import__)\("
    r"|\b(?:allow_pickle|shell)=(?!False)"
    r"|\bos\.(?:system|popen)\b|^from os import .*\bsystem\b"
    r"|\byaml\.(?:unsafe_|full_)?load\b|create_subprocess_shell|torch\.load"
)
SETTABLE_CLOCK = re.compile(
    r"\btime\.time(?:_ns)?\(|^from time import .*\btime\b|^\s*(?:import|from) datetime\b"
)
# Assembled from parts, so that this file does not contain what it looks for. The user of the
# container images has a home; nobody else's is known.
OF_ONE_MACHINE = re.compile(
    "|".join(
        (
            *("pypi" + r"\.org", "python" + "hosted", "pytorch" + r"\.org/whl"),
            *("anaconda" + r"\.org", "--(?:extra-)?index" + "-url", "--find" + "-links"),
            "--trusted" + "-host",
            r"(?<![\w./$}])/(?:work|root|home/(?!seedrl\b)\w+|Users/\w+|opt/pypi|tmp/v\d+)\b",
        )
    )
)


def found(pattern: re.Pattern[str], *folders: str) -> list[str]:
    """`file:line: text` of what is under version control, or is about to be."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *folders]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listing.returncode != 0:
        pytest.skip("not a git checkout: what belongs to the repository is unknown")
    hits = []
    for name in filter(None, listing.stdout.split("\0")):
        try:
            lines = (ROOT / name).read_text().splitlines()
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        hits += [
            f"{name}:{number}: {line}"
            for number, line in enumerate(lines, 1)
            if pattern.search(line)
        ]
    return hits


def test_packages_never_run_what_they_were_sent() -> None:
    assert found(UNSAFE, *(f"{package}/*.py" for package in PACKAGES)) == []


def test_a_clock_that_can_be_set_decides_on_nothing() -> None:
    files = (*(f"{folder}/*.py" for folder in TIMED), ":(exclude)learner/reports.py")
    assert found(SETTABLE_CLOCK, *files) == []


def test_no_file_names_a_registry_or_a_path_of_one_machine() -> None:
    assert found(OF_ONE_MACHINE) == []
