"""Of two environments in one group the second fails: it is named, whatever it does."""

import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from envs_server.backends import sync
from envs_server.errors import EnvironmentFailedError
from envs_server.group import EnvGroup, Place
from envs_server.recipe import Recipe
from seedrl.wire.framing import ActionsPayload
from seedrl.wire.payload import pack_actions


def _raise() -> Any:
    raise RuntimeError("no licence")


_SOUND = (np.zeros(2, np.float32), 1.0, False, False, {})

# What the second environment returns from its step, and what is said of it.
CASES: dict[str, tuple[Any, str]] = {
    "raises": (_raise, "RuntimeError: no licence"),
    "NaN reward": (
        (_SOUND[0], float("nan"), *_SOUND[2:]),
        "expected finite numbers in reward, got",
    ),
    "infinite reward": ((_SOUND[0], float("inf"), *_SOUND[2:]), "expected finite numbers in rewar"),
    "absurd reward": (
        (_SOUND[0], 1e38, *_SOUND[2:]),
        "expected a reward of -1e+06 to 1e+06 (environment.max_abs_reward), got 1e+38 at [1]",
    ),
    "reward beyond float32": ((_SOUND[0], 1e300, *_SOUND[2:]), "expected a reward of -1e+06 to 1"),
    "array reward": ((_SOUND[0], np.ones(3), *_SOUND[2:]), "ValueError: "),
    "NaN observation": (
        (np.array([0, np.nan], np.float32), *_SOUND[1:]),
        "expected finite numbers in observation, got nan at [1, 1]",
    ),
    "observation beyond float32": (
        (np.array([0, 1e300]), *_SOUND[1:]),
        "expected an observation that fits into float32, as its space declares, got 1e+300",
    ),
    "another shape": (
        (np.zeros(3, np.float32), *_SOUND[1:]),
        "expected an observation of shape (2,), got one of (3,)",
    ),
    "no info": ((*_SOUND[:4], None), "AttributeError: "),
}


class Second(gymnasium.Env[np.ndarray, int]):
    """The first one that is built is sound, the second returns `bad`."""

    observation_space = spaces.Box(-9, 9, (2,), np.float32)
    action_space = spaces.Discrete(2)
    bad: Any = _SOUND
    num_built = 0

    def __init__(self) -> None:
        Second.num_built += 1
        self._is_bad = Second.num_built == 2

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if self._is_bad and Second.bad == "reset":
            _raise()
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> Any:
        bad = Second.bad
        return _SOUND if not self._is_bad else bad() if callable(bad) else bad


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> EnvGroup:
    monkeypatch.setattr(Second, "num_built", 0)
    environment = sync.build(Recipe("second", {}, factory=Second), 2)
    places = [Place(6, 20), Place(7, 21)]
    return EnvGroup(3, environment, [1, 2], places=places, max_abs_reward=1e6)


# What numpy says to the cast that gymnasium makes.
@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
@pytest.mark.parametrize(("bad", "text"), CASES.values(), ids=CASES)
def test_the_environment_that_fails_in_a_step_is_named(
    bad: Any, text: str, group: EnvGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Second, "bad", bad)
    group.first()
    with pytest.raises(EnvironmentFailedError) as fault:
        group.step(ActionsPayload(pack_actions(3, 0, np.zeros(2, np.int32))))
    assert str(fault.value).startswith(f"environment 7 (slot 21), step 1 of group 3: {text}")
    assert fault.value.position == 7


def test_the_environment_that_cannot_be_reset_is_named(
    group: EnvGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Second, "bad", "reset")
    with pytest.raises(EnvironmentFailedError) as fault:
        group.first()
    assert str(fault.value).startswith("environment 7 (slot 21), reset of group 3: RuntimeError: n")
    assert fault.value.position == 7


def test_an_environment_that_is_made_of_several_is_named_itself(
    group: EnvGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = SyncVectorEnv([Second] * 8)
    monkeypatch.setattr(parts.envs[6], "step", lambda action: _raise())
    monkeypatch.setattr(Second, "bad", lambda: parts.step(np.zeros(8, np.int64)))
    group.first()
    parts.reset()
    with pytest.raises(EnvironmentFailedError) as fault:
        group.step(ActionsPayload(pack_actions(3, 0, np.zeros(2, np.int32))))
    assert fault.value.position == 7


def test_what_hangs_names_the_setting_that_decides_after_what_time(group: EnvGroup) -> None:
    frames = [sys._getframe()]
    assert ": it hangs for 600 s, in " in (text := str(group.overdue(frames, 600)))
    assert text.startswith("reset of group 3: ")
    group.first()
    text = str(group.overdue(frames, 60))
    assert text.startswith("step 1 of group 3: it hangs for 60 s (serving.step_deadline_seconds)")
    group.close()
    assert str(group.overdue(frames, 60)).startswith("close of group 3: it hangs for 60 s, in ")
