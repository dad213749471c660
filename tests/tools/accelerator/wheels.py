"""Gathers the wheels that travel: `python -m tests.tools.accelerator.wheels FOLDER`, with an index.

They are those of the lock for the Python of the machine with the accelerator, without what such a
machine has for its jax. Each is fetched by its hashes.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
PYTHON = "3.12"
MOST_BYTES = 48 * 2**20  # 64 MiB travel, and the checkout is among them
# Which of the kernel's C libraries a wheel is for; pip takes each number for itself alone.
_PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in range(5, 35)]
# What is missing beside jax, flax, optax, orbax and chex with all that they need, and what may be
# there in a version below ours and is small.
_NAMES = (
    "ale-py cloudpickle contourpy cycler execnet farama-notifications flatbuffers fonttools "
    "grpcio gymnasium hypothesis iniconfig kiwisolver markdown-it-py "
    "matplotlib mdurl packaging pillow pluggy prometheus-client protobuf pygments pyparsing "
    "pytest pytest-timeout pytest-xdist python-dateutil pyyaml rich sortedcontainers "
    "tensorboardx typing-extensions tzdata "
)
NAMES = frozenset(_NAMES.split())


def locked(lock: str, python: str = PYTHON) -> Iterator[tuple[str, str]]:
    """What a Python of that version gets: names, and `name==version --hash=…` without markers."""
    target = {"python_version": python, "python_full_version": f"{python}.0"}
    for entry in lock.replace("\\\n", " ").splitlines():
        words, _, hashes = entry.partition(" --hash=")
        if not words.strip() or words.startswith("#"):
            continue
        requirement = Requirement(words)
        if requirement.marker is None or requirement.marker.evaluate(target):
            yield requirement.name, f"{requirement.name}{requirement.specifier} --hash={hashes}"


def main() -> int:
    """Returns pip's exit code; 1 if there is too much."""
    folder = Path(sys.argv[1])
    lines = dict(locked((ROOT / "requirements.lock").read_text()))
    if missing := sorted(NAMES - lines.keys()):
        print(f"expected {', '.join(missing)} in requirements.lock")
        return 1
    for old in folder.glob("*.whl"):
        old.unlink()
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(lines[name] for name in sorted(NAMES)) + "\n")
        file.flush()
        command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check"]
        command += ["--no-deps", "--only-binary=:all:", "--require-hashes", "-r", file.name]
        command += ["--python-version", PYTHON, "--implementation", "cp", "-d", str(folder)]
        for platform in _PLATFORMS:
            command += ["--platform", platform]
        code = subprocess.run(command).returncode
    sizes = [wheel.stat().st_size for wheel in folder.glob("*.whl")]
    print(f"{len(sizes)} wheels, {sum(sizes) / 2**20:.1f} MiB, in {folder}")
    return code or int(sum(sizes) > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
