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


def python(name: str, venvs: Path, lists: Path = PROGRAMS) -> Path:
    """The interpreter of the environment `venvs/name`, which is made first if there is none.

    It holds what `NAME.txt` in `lists` names, and is made again when that file has changed. A copy
    of the list in the folder says that it was made to the end.

    Raises RuntimeError if something cannot be installed.
    """
    requirements = lists / f"{name}.txt"
    folder = venvs / name
    installed = folder / requirements.name
    interpreter = folder / "bin" / "python"
    if installed.is_file() and installed.read_bytes() == requirements.read_bytes():
        return interpreter
    shutil.rmtree(folder, ignore_errors=True)
    pip = (str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    for command in (
        (sys.executable, "-m", "venv", str(folder)),
        (*pip, "--requirement", str(requirements)),
    ):
        if subprocess.run(command).returncode != 0:
            raise RuntimeError(
                f"the virtual environment of {name} could not be made: {' '.join(command)}"
            )
    shutil.copyfile(requirements, installed)
    return interpreter
