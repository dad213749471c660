"""Makes an environment of what a machine has and of wheels that were carried along.

`python -m tests.tools.accelerator.install FOLDER WHEELS`, by the Python that has jax; no index.
"""

import os
import shutil
import site
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
# Of the extra `dev` what the tests of the day import.
_TOOLS = ("hypothesis", "pytest", "pytest-timeout", "pytest-xdist", "pyyaml", "packaging")


def requirements() -> Iterator[str]:
    """What has to be there, as pyproject.toml says; pip looks whether it is."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    yield from project["dependencies"]
    for extra in ("learner", "atari"):
        yield from extras[extra]
    yield from (each for each in extras["dev"] if each.partition(">=")[0] in _TOOLS)


def make(folder: Path) -> Path:
    """Makes an empty environment that sees this Python's packages; returns its interpreter."""
    shutil.rmtree(folder, ignore_errors=True)
    # Not `--system-site-packages`: those would be of the Python that made this one's environment.
    venv.create(folder, with_pip=False, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / version / "site-packages"
    own = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()}
    lines = [f"import site; site.addsitedir({path!r})" for path in sorted(own)]
    (packages / "of_this_machine.pth").write_text("\n".join(lines) + "\n")
    # A folder without __init__ gives way to any package `tests` that somebody has installed.
    (packages / "tests").mkdir()
    (packages / "tests" / "__init__.py").write_text(f"__path__ = [{str(ROOT / 'tests')!r}]\n")
    return folder / "bin" / "python"


def main() -> int:
    """Returns pip's exit code."""
    folder, wheels = map(Path, sys.argv[1:])
    if not any(wheels.glob("*.whl")):
        print(f"expected wheels in {wheels}: run `make wheels` where there is an index")
        return 2
    python = make(folder / "venv")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    # pip takes what the machine has if that is new enough, and carried wheels for the rest.
    command = [*pip, "install", "--no-index", "--no-compile", "--no-cache-dir", "-f", str(wheels)]
    # What this machine's user has set would add an index again.
    own = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    variables = own | {"PIP_CONFIG_FILE": os.devnull}
    code = subprocess.run([*command, *requirements()], env=variables).returncode
    if code:
        shutil.rmtree(folder / "venv")  # no stage shall take it for whole
    return code


if __name__ == "__main__":
    sys.exit(main())
