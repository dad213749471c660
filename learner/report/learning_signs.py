"""Signs that a run may not learn, seen in the metrics of its intervals, and the field to try."""

import math
from collections.abc import Callable, Mapping
from typing import Any

_Values = Mapping[str, float]

# Before these a run is too young.
_STEPS, _EPISODES = 20_000, 100
_INTERVALS = 6  # half a minute by default
# Adam divides by sqrt(v) + epsilon. Of this many parameters with gradients of one size, each has a
# hundredth of their norm; if that is less than epsilon, steps are small because gradients are.
_PARAMETERS = 10_000
_NO_ENTROPY = 0.02  # nats; two actions, one of which is taken 3 times in 1,000, have as much
# Multiple of the largest value that the episodes so far make possible.
_FAR = 3.0
# Updates of policy lag. With 4 IMPALA needs up to four times the steps on CartPole, with 8 it may
# never learn (docs/performance_notebook.md).
_MOST_LAG = 4.0


class LearningSigns:
    """Looks at each interval's metrics, and gives each sign once. Used by one thread."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        """`fields`: the configuration by field, as `fields_of` gives it."""
        self._fields = fields
        self._lowest, self._highest = math.inf, -math.inf
        self._first: float | None = None  # mean return of the first interval with episodes
        self._length = 1.0
        self._in_a_row: dict[str, int] = {}
        self._given: set[str] = set()
        # By name, with the intervals in a row that show it until it is reported.
        self._tests: dict[str, tuple[Callable[[_Values], str], int]] = {
            "no_reward": (self._no_reward, _INTERVALS),
            "no_gradient": (self._no_gradient, _INTERVALS),
            "no_entropy": (self._no_entropy, _INTERVALS),
            "values_far": (self._values_far, _INTERVALS),
            "old_parameters": (self._old_parameters, 1),  # follows from the configuration
        }

    def look(self, values: _Values) -> dict[str, str]:
        """Signs that have been there for some intervals and were not given before.

        By name the line about each: what was seen, and what to try.
        """
        if "return/training" in values:
            self._lowest = min(self._lowest, values["return/training_min"])
            self._highest = max(self._highest, values["return/training_max"])
            self._length = values.get("length/training", 1.0)
            if self._first is None:
                self._first = values["return/training"]
        is_young = values.get("episodes/training", 0) < _EPISODES or not values.get("updates")
        if is_young or values.get("env_steps", 0) < _STEPS:
            return {}
        found = {}
        for name, (test, intervals) in self._tests.items():
            text = test(values)
            self._in_a_row[name] = self._in_a_row.get(name, 0) + 1 if text else 0
            if self._in_a_row[name] >= intervals and name not in self._given:
                self._given.add(name)
                found[name] = text
        return found

    def _no_reward(self, values: _Values) -> str:
        if self._lowest != self._highest:
            return ""
        names = ("agent.exploration_base", "agent.entropy_cost", "agent.initial_temperature")
        return (
            f"all {values['episodes/training']:,.0f} training episodes returned "
            f"{self._highest:g}. hint: explore more ({self._field(names)}), or let the environment "
            "reward steps towards the goal"
        )

    def _no_gradient(self, values: _Values) -> str:
        epsilon = self._number("agent.adam_epsilon", 1e-8)
        norm = values.get("gradient_norm", math.inf)
        # Those of a policy that has learned its task are small, too.
        middle = ((self._first or 0.0) + self._highest) / 2
        if norm >= epsilon * math.sqrt(_PARAMETERS) or values.get("return/training", 0) > middle:
            return ""
        if not norm:
            return (
                "gradient_norm is 0. hint: check that rewards and observations are not all the same"
            )
        names = ("agent.reward_scale", "agent.normalize_rewards")
        return (
            f"gradient_norm {norm:.2g} is small for Adam's epsilon of {epsilon:g}. hint: lower "
            f"that epsilon, or raise the rewards ({self._field(names)})"
        )

    def _no_entropy(self, values: _Values) -> str:
        # Of a policy that has learned its task this is no fault.
        is_better = self._first is None or values.get("return/training", math.inf) > self._first
        if is_better or not 0 <= values.get("entropy", math.inf) < _NO_ENTROPY:
            return ""
        names = ("agent.entropy_cost",)
        return (
            f"entropy is {values['entropy']:.2g}, while training returns are no better than at "
            f"first. hint: raise {self._field(names)}, or lower agent.learning_rate"
        )

    def _values_far(self, values: _Values) -> str:
        # SAC's values count the entropy too.
        value = values.get("q_mean", values.get("value_mean"))
        largest = max(abs(self._lowest), abs(self._highest))
        if value is None or "temperature" in values or not math.isfinite(largest):
            return ""
        if self._number("agent.reward_clip", 0.0):
            return ""
        units = self._number("agent.reward_scale", 1.0) / values.get("return_std", 1.0)
        # Episodes that are cut short are valued beyond their end, by as many steps as a value looks
        # ahead.
        horizon = 1.0 / max(1.0 - self._number("agent.gamma", 1.0), 1e-3)
        possible = _FAR * units * largest * max(1.0, horizon / max(self._length, 1.0))
        if self._fields.get("agent.value_scaling"):  # close to h, which rescales Q-values
            possible = math.sqrt(possible + 1.0)
        if abs(value) <= possible + 1.0:
            return ""
        interval = "agent.target_update_interval"
        return (
            f"values of {value:.3g} are far from the returns of episodes so far, "
            f"{self._lowest:.3g} to {self._highest:.3g}. hint: lower agent.learning_rate"
            f"{f', or raise {interval}' if interval in self._fields else ''}"
        )

    def _old_parameters(self, values: _Values) -> str:
        lag = values.get("policy_lag_updates", 0.0)
        if "replay.ahead_updates" not in self._fields or lag <= _MOST_LAG:
            return ""
        slots, batch = (
            f"{path} ({self._fields[path]})"
            for path in ("serving.training_slots", "learning.batch_sequences")
        )
        return (
            f"policy lag is {lag:.1f} updates, much for this agent. hint: lower {slots}, or "
            f"raise {batch}: at most one training slot for each sequence of an update"
        )

    def _number(self, path: str, default: float) -> float:
        value = self._fields.get(path, default)
        return float(value) if isinstance(value, int | float) else default

    def _field(self, paths: tuple[str, ...]) -> str:
        """The first of these fields that the configuration has."""
        return next((path for path in paths if path in self._fields), paths[0])
