"""The tests that mutants are tried against: the same for all of them."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
# Not the command line, packaging and reports: no mutant touches them. `gate.tiers` runs those next
# to a mutant's file first.
_FOLDERS = (
    *(f"seedrl/{name}" for name in ("rl", "replay", "networks", "agents", "wire", "contracts")),
    *(f"learner/{name}" for name in ("acting", "learning", "serving", "threads", "runtime")),
    *("learner/hosts", "learner/multihost", "learner/session", "learner/saving"),
    *("envs_server", "simulation"),
)
_SYSTEM = ("experience", "devices", "balance", "frozen")
_REPLAYED = ("replayed_q_values", "replayed_policy", "replayed_transitions")


def tests() -> list[str]:
    """Their paths from the root."""
    tree = ROOT / "tests"
    found = [path for folder in _FOLDERS for path in sorted((tree / folder).rglob("test_*.py"))]
    found += [tree / "system" / f"test_{name}.py" for name in (*_SYSTEM, *_REPLAYED)]
    return [str(path.relative_to(ROOT)) for path in found if path.is_file()]


# Mutants that only tests of other modules find: `--fast` runs only those of the module itself.
NOT_FAST = (
    "link_outlives_connection",
    "outbox_sleeps_on_an_item",
    "last_observation_of_next_episode",
)
