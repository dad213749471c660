"""CartPole, of which one instance on this machine is bad, in a way that is asked for.

That is the sixth instance of the first process to take the file `claim`, which it holds as long as
it lives; and each that is built in its place, until it has failed once more than an environment may
within an hour.
"""

import collections
import fcntl
import itertools
import math
import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

_BAD = 5
_FAILURES = 11
_built = itertools.count()
_is_due: list[bool] = []  # for each failure: True until the instance in its place was built


def make(claim: str, fault: str, per_server: int = 16, at_step: int = 7) -> gymnasium.Env[Any, Any]:
    """A CartPole, maybe the bad one.

    Args:
      claim: a file that the bad one locks.
      fault: what it does: `raises`, `hangs`, `locks`, `nan`, `1e38`, `1e300`, or nothing.
      per_server: environments of an env server: the sixth of each so many may be bad.
      at_step: of an episode, at which it does so.
    """
    environment = gymnasium.make("CartPole-v1", disable_env_checker=True)
    if _is_due and _is_due[-1] and len(_is_due) < _FAILURES:
        _is_due[-1] = False
        return _Bad(environment, fault, at_step)
    if next(_built) % per_server == min(_BAD, per_server - 1) and _claims(claim):
        return _Bad(environment, fault, at_step)
    return environment


def _claims(claim: str) -> bool:
    descriptor = os.open(Path(claim), os.O_RDWR | os.O_CREAT)
    try:
        # Of this process, not of the descriptor: a second instance here has it too.
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return False
    return True


class _Bad(gymnasium.Wrapper[Any, Any, Any, Any]):
    def __init__(self, environment: gymnasium.Env[Any, Any], fault: str, at_step: int) -> None:
        super().__init__(environment)
        self._fault, self._at_step, self._step = fault, at_step, 0

    def reset(self, **keywords: Any) -> Any:
        self._step = 0
        return super().reset(**keywords)

    def step(self, action: Any) -> Any:
        self._step += 1
        observation, reward, *others = super().step(action)
        if self._step == self._at_step:
            _is_due.append(True)
            match self._fault:
                case "raises":
                    raise RuntimeError("the simulator has lost its licence")
                case "hangs":
                    time.sleep(1e6)
                case "locks":  # and computes, without a look at anything else
                    collections.deque(itertools.repeat(None), maxlen=0)
                case "nan":
                    reward = math.nan
                case "1e38":
                    reward = 1e38
                case "1e300":
                    observation = observation.astype(np.float64)
                    observation[0] = 1e300
        return observation, reward, *others
