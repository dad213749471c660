"""A virtual environment for each peer: what they need does not fit beside each other, or us."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"


def default_folder() -> Path:
    """Of all virtual environments."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seedrl-peers"


def variables() -> dict[str, str]:
    """Our environment variables without the path on which ours would be found before a peer's."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def python(name: str, venvs: Path) -> Path:
    """The interpreter of the environment `venvs/name`, which is made first if there is none.

    It holds what `NAME.txt` names, and is made again when that file has changed. A copy of the list
    in the folder says that it was made to the end.

    Raises CalledProcessError if something cannot be installed.
    """
    requirements = PROGRAMS / f"{name}.txt"
    folder = venvs / name
    installed = folder / requirements.name
    interpreter = folder / "bin" / "python"
    if installed.is_file() and installed.read_bytes() == requirements.read_bytes():
        return interpreter
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run((sys.executable, "-m", "venv", folder), check=True)
    install(interpreter, "--requirement", str(requirements))
    shutil.copyfile(requirements, installed)
    return interpreter


def install(interpreter: Path, *words: str, **changed: str) -> None:
    """Calls pip, with other environment variables. Raises CalledProcessError."""
    pip = (interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    subprocess.run((*pip, *words), env=os.environ | changed, check=True)
