"""A stored sequence of recurrent SAC, replayed from its stored carry, gives what acting saw.

Of parameters that never change: on every stored row the middle of the policy is the one that acting
had, over resets, truncations and terminations, on rows of LAST, and before and after a reconnect.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seedrl.agents.agent import ActOutput, Agent, AgentState, UpdateOutput
from seedrl.agents.inputs import unrolled_after_burn_in
from seedrl.agents.sac import SacConfig
from seedrl.agents.window import WindowSpec
from seedrl.config import Config, EvaluationConfig, LearningConfig, ReplayConfig, ServingConfig
from seedrl.specs import EnvSpec
from tests.seedrl.agents.linear_network import LinearConfig
from tests.system.harness import LearnerRun
from tests.system.oracle import counting


@dataclass(frozen=True, kw_only=True)
class UnchangingSac:
    """SAC whose updates change nothing, and which stores the action without noise, too."""

    sac: SacConfig

    @property
    def window(self) -> WindowSpec:
        return self.sac.window

    def build(self, spec: EnvSpec) -> Agent:
        agent = self.sac.build(spec)

        def act(behaviour: Any, carry: Any, timestep: Any, noise: Any, key: Any) -> ActOutput:
            middle = agent.act(behaviour, carry, timestep, 0 * noise, key).action
            output = agent.act(behaviour, carry, timestep, noise, key)
            return output._replace(extras=middle)

        def update(
            state: AgentState, sequence: Any, weights: Any, key: Any, mean: Any
        ) -> tuple[AgentState, UpdateOutput]:
            return state, UpdateOutput({}, guarded=jnp.zeros(()))

        return agent._replace(act=act, update=update)


NETWORK = LinearConfig(memory_size=3)
CONFIG = Config(
    environment=dataclasses.replace(
        counting((2, 1, 9, 25), 0),
        wrappers=("gymnasium.wrappers:NormalizeObservation", "gymnasium.wrappers:NormalizeReward"),
    ),
    agent=UnchangingSac(sac=SacConfig(network=NETWORK, burn_in=2, unroll=5)),
    serving=ServingConfig(training_slots=2, evaluation_slots=1),
    replay=ReplayConfig(
        capacity_steps=2_400,
        min_steps=90,
        priority_exponent=0.0,
        importance_exponent=0.0,
        ratio=0.2,
    ),
    learning=LearningConfig(batch_sequences=4, num_devices=1),
    evaluation=EvaluationConfig(interval_seconds=0.0, episodes=1),
)


def test_every_row_gives_the_policy_that_acted_from_the_carry_that_was_stored(
    learner_run: Callable[[Config], LearnerRun],
) -> None:
    run = learner_run(CONFIG)
    allow = ("--allow-env", "gymnasium.wrappers*")
    outcome = run.run_with_a_replaced_env_server(3, *allow, env_steps=200)
    spec = run.hub.wait_for_spec(0.0)
    assert spec is not None
    network, sequence = NETWORK.build(spec), outcome.shards[0].sequences
    actor, memory = outcome.agent.actor_params(outcome.state.params)

    @jax.jit
    def middles() -> Any:
        remembered = unrolled_after_burn_in(network.memory, 0, memory, sequence)
        seen = (remembered, sequence.steps.timestep.observation)
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, leaf.shape[-1]), seen)
        return jnp.tanh(network.policy(actor, *flat).mean).reshape(sequence.steps.extras.shape)

    found, steps = np.asarray(middles()), sequence.steps
    np.testing.assert_allclose(found, steps.extras, rtol=0, atol=1e-5)
    assert found.shape[1] > 50
    # Numbers that differ between rows by far more, and actions that had noise.
    assert np.std(found, axis=(0, 1)).min() > 1e-2
    assert np.abs(steps.action - steps.extras).mean() > 0.1
    assert {int(kind) for kind in steps.timestep.step_type[0]} == {0, 1, 2}
    ends = steps.timestep.discount[1:-1][steps.timestep.step_type[1:-1] == 2]
    assert {int(discount) for discount in ends} == {0, 1}
    assert np.abs(jax.tree.leaves(sequence.carry.network)[0]).max(axis=-1).min() == 0  # of a start
