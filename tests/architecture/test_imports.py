"""What a fresh interpreter loads.

`make check` reads the import statements; it does not see what a package's own `__init__` or an
installed plug-in pulls in.
"""

import subprocess
import sys
from pathlib import Path

from tests.patience import SECONDS

ROOT = Path(__file__).parents[2]

JAX = ("jax", "jaxlib", "flax", "optax", "chex", "orbax")
HEAVY = (*JAX, "learner", "seedrl.agents", "seedrl.rl", "ale_py", "pygame", "scipy")


def loaded_modules(*modules: str) -> set[str]:
    """What `sys.modules` holds in a fresh interpreter after importing `modules`.

    What none of them may load is asked of all at once: each alone loads no more.
    """
    code = f"import sys, {', '.join(modules)}\nprint(*sys.modules, sep='\\n')"
    child = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert child.returncode == 0, child.stderr
    loaded = set(child.stdout.split())
    assert set(modules) <= loaded
    return loaded


def test_an_env_server_and_what_it_shares_load_nothing_heavy() -> None:
    loaded = loaded_modules(
        "seedrl.types",
        "seedrl.specs",
        "seedrl.wire.seedrl_pb2",
        "envs_server.__main__",
        "envs_server.client",
        "envs_server.check.__main__",
    )
    assert {name for name in HEAVY if name in loaded} == set()


def test_serving_loads_no_jax() -> None:
    loaded = loaded_modules("learner.serving.server")
    assert {
        name for name in (*JAX, "learner.acting", "learner.learning") if name in loaded
    } == set()
