"""Seeds of environments: one for each life of a slot, so that a run can be repeated."""

import hashlib


def environment_seed(seed: int, slot: int, epoch: int) -> int:
    """A seed in [0, 2^31), different for each seed, slot and epoch up to hash collisions."""
    return _hash(f"{seed}/{slot}/{epoch}")


def session_seed(run_seed: int, session: str) -> int:
    """The seed of a session's environments, in [0, 2^31)."""
    return _hash(f"{run_seed}/{session}")


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little") >> 1
