"""Checks an environment against the contract, as an author of one would want to before training."""

from collections.abc import Callable, Iterator

import numpy as np

from envs_server.adapter import Adapter
from envs_server.spaces import env_spec, first_action
from envs_server.vector import VectorEnvironment
from seedrl.types import StepType, TimeStep
from seedrl.wire.framing import WireError
from seedrl.wire.payload import StepLayout


def violations(
    build: Callable[[], VectorEnvironment], seeds: list[int], num_steps: int
) -> list[str]:
    """Plays `num_steps` random actions twice in fresh environments; the rules broken, one a line.

    The rules: step payloads that the wire accepts (shapes, dtypes, finite values, discounts);
    FIRST after LAST and nowhere else; and the same steps from the same seeds and actions.
    Raises BuildError for an environment of an unsupported kind.
    """
    first, broken = _play(build, seeds, num_steps)
    second, _ = _play(build, seeds, num_steps)
    if not broken and first != second:
        step = next(i for i, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)
        broken.append(f"step {step}: the same seeds and actions gave another step")
    return broken


def _play(
    build: Callable[[], VectorEnvironment], seeds: list[int], num_steps: int
) -> tuple[list[bytes], list[str]]:
    environment = build()
    spec = env_spec(environment.observation_space, environment.action_space)
    layout, adapter = StepLayout(spec, len(seeds)), Adapter(environment)
    random = np.random.default_rng(0)
    payloads: list[bytes] = []
    broken: list[str] = []
    previous = np.full(len(seeds), StepType.LAST, np.uint8)
    for number in range(num_steps + 1):
        actions = random.integers(spec.num_actions, size=len(seeds))
        try:
            step = (
                adapter.step(actions + first_action(environment.action_space))
                if number
                else adapter.reset(seeds)
            )
            payloads.append(layout.pack(0, number, step))
            layout.unpack(payloads[-1])
        except (WireError, ValueError) as error:
            broken.append(f"step {number}: {error}")
            break
        broken += [f"step {number}: {line}" for line in _order(previous, step)]
        previous = step.step_type
    environment.close()
    return payloads, broken


def _order(previous: np.ndarray, step: TimeStep) -> Iterator[str]:
    for row, (before, kind) in enumerate(zip(previous, step.step_type, strict=True)):
        if (before == StepType.LAST) != (kind == StepType.FIRST):
            yield (
                f"environment {row}: expected FIRST exactly after LAST, "
                f"got {StepType(kind).name} after {StepType(before).name}"
            )
