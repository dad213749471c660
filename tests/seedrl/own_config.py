"""A configuration as a user writes it: with an agent of its own, beside a module of its own."""

from pathlib import Path

OWN_CONFIG = '''
from dataclasses import dataclass
from {sibling} import LENGTH
from seedrl.config import Config, EnvironmentConfig

@dataclass(frozen=True, kw_only=True)
class OwnAgent:
    """An agent of a user.

    Attributes:
      unroll: trained steps.
    """

    unroll: int = LENGTH
    sizes: tuple[int, ...] = (1, 2)
    names: tuple[tuple[str, ...], ...] = ((), ("a",))
    table: object = None

def config():
    return Config(
        environment=EnvironmentConfig(id="own_env:make", wrappers=("a:b", "c:d")),
        agent=OwnAgent(table={{"type": [1, None, True, 0.5]}}),
    )
'''


def write_own(folder: Path, sibling: str) -> Path:
    """The path of such a configuration in `folder`, which imports a module named `sibling`."""
    (folder / f"{sibling}.py").write_text("LENGTH = 7\n")
    path = folder / "own.py"
    path.write_text(OWN_CONFIG.format(sibling=sibling))
    return path
