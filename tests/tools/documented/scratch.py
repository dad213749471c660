"""Where documented commands run: a folder for each document, and what must be there before."""

import importlib.util
import os
import re
import shutil
import socket
import sys
from pathlib import Path

from tests.tools.documented.commands import ROOT, Command, write_files
from tests.tools.engines.one_machine import missing

# Files that a document says are there, and commands whose runs it looks at.
_EXAMPLES = ROOT / "docs" / "examples"
_FOLDERS = {
    "docs/examples/README.md": _EXAMPLES,
    "docs/examples/two_machines/README.md": _EXAMPLES / "own_environment",
    "docs/examples/env_server_node/README.md": _EXAMPLES / "env_server_node",
}
BEFORE = {
    "docs/watch.md": "seedrl train cartpole_r2d2 --workdir runs/cartpole "
    "--learning.total-steps 3000 --evaluation.target-return None",
}

# Programs of engines that place processes on machines: they want a cluster, or docker.
ENGINES = ("docker", "gcloud", "kubectl", "ray", "sbatch", "scancel", "scontrol", "sky", "squeue")

# A documented size that takes longer than a reader's look: the same command with a smaller one.
_SMALLER = (
    (r"^(seedrl bench(?!.*--seconds).*)", r"\1 --seconds 0.1"),
    (r"^(seedrl bench(?!.*--rounds).*)", r"\1 --rounds 1"),
    (r"--core \d+ --programs \d+", "--core 300 --programs 3"),
    (r"--steps 1000000", "--steps 20000"),
    (r"--total-steps 20000", "--total-steps 4000"),
    (r"--rounds \d+", "--rounds 1"),
    (r"--seconds [\d.]+", "--seconds 0.1"),
)


def prepare(document: str, root: Path) -> Path:
    """Puts below `root` what the reader of the document has by then; the folder to be in."""
    # As in the clone: files that a document names are where it says, and so is what they need.
    shutil.copytree(ROOT / "proto", root / "proto")
    shutil.copytree(ROOT / "docs" / "results", root / "docs" / "results")
    place = root
    if (files := _FOLDERS.get(document)) is not None:
        place = root / files.relative_to(ROOT)
        shutil.copytree(files, place, ignore=shutil.ignore_patterns("node_modules", "__pycache__"))
    write_files(ROOT / document, place)
    return place


def here(command: Command, port: int) -> str:
    """The command for this machine: a free port, no folder at its root, sizes that end soon."""
    words = command.words.replace("8686", str(port)).replace("0.0.0.0", "127.0.0.1")
    words = words.replace("LEARNER:", "127.0.0.1:").replace("/checkpoints/", "checkpoints/")
    words = words.replace("~/", "")
    words = words.replace("unix:/tmp/", "unix:")
    for pattern, smaller in _SMALLER:
        words = re.sub(pattern, smaller, words)
    # What would change this machine is gone through, and not done.
    match command.argv:
        case ["make", *_]:
            return words.replace("make", f"make --dry-run --directory {ROOT}", 1)
        case ["pip", "install", what]:
            what = what.replace(".", str(ROOT), 1)
            return f"pip install --dry-run --no-deps --no-build-isolation '{what}'"
    return words


def left_out(command: Command) -> str:
    """Why a command cannot run here; "" if it can."""
    if command.argv[:3] == ["python", "-m", "tests.benchmarks.peers"]:
        return "makes virtual environments of other libraries, gigabytes of them"
    if command.argv[0] in ENGINES or "--on" in command.argv:
        return "wants a cluster, or docker"
    if "tests.tools.engines.ray" in command.argv and importlib.util.find_spec("ray") is None:
        return "wants Ray"
    if command.argv[:3] == ["python", "-m", "tests.tools.engines.slurm"] and missing():
        return "wants Slurm"
    if "node" in command.file and shutil.which("npm") is None:
        return "node and npm are not installed"
    return ""


def environment() -> dict[str, str]:
    """The environment variables of a shell in which seedrl is installed."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port
