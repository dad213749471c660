"""The table of metrics: what a run writes to `metrics.jsonl`, and the source of docs/metrics.md.

Tests compare it with the names that the code emits, in both directions. An agent emits metrics of
its own: those of the bundled agents are here, one of another package needs no entry.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from seedrl.agents.metric_meanings import GRPO, IMPALA, PPO, R2D2, SAC

Kind = Literal["count", "gauge", "distribution", "extremes", "mean", "share"]
Group = Literal["balance", "learning", "agent", "episodes", "ledger", "system"]

PERCENTILES = (50, 95, 99)


class Metric(NamedTuple):
    """A metric of an interval."""

    name: str  # as the code emits it; `lines` gives the names in `metrics.jsonl`
    kind: Kind  # how it is reported; see KINDS
    group: Group  # of metrics.md and of TensorBoard
    unit: str  # of the value; of a count, of the total
    meaning: str  # what is measured, where and when
    is_rare: bool = False  # a run in which nothing goes wrong does not emit it


KINDS: dict[Kind, str] = {
    "count": "`NAME`: the total of the whole run; `NAME_per_second`: the rate over the interval",
    "gauge": "the last value; it stays until there is a new one",
    "distribution": "`NAME`: the mean of the interval; `NAME_p50`, `NAME_p95`, `NAME_p99`: "
    "percentiles of its last 8192 values. Absent where the interval has none",
    "extremes": "`NAME`: the mean of the interval; `NAME_min`, `NAME_max`: its extremes. "
    "Absent where the interval has none",
    "mean": "the mean of the interval; absent where the interval has none",
    "share": "a share of the interval, 0 to 1",
}

# fmt: off
METRICS: tuple[Metric, ...] = (
    # balance
    Metric("env_steps", "count", "balance", "steps",
           "training environment steps; a reset is no step"),
    Metric("frames", "count", "balance", "frames",
           "emulator frames of the training steps: `environment.frames_per_step` each"),
    Metric("updates", "count", "balance", "updates",
           "updates that changed the parameters; the total counts the whole run"),
    Metric("replay_ratio", "gauge", "balance", "steps/step",
           "trained steps (without burn-in) per training environment step, of the whole run; "
           "starts below the target, because steps before the first update count too"),
    Metric("replay_ratio_target", "gauge", "balance", "steps/step", "the configured replay ratio"),
    Metric("queue_updates", "gauge", "balance", "updates",
           "complete sequences that wait in an on-policy queue, divided by the sequences of an "
           "update; acting waits if it is `ahead_updates` or more", is_rare=True),
    Metric("stale_sequences", "count", "balance", "sequences", "see `ledger/stale`", is_rare=True),
    Metric("policy_lag_updates", "distribution", "balance", "updates",
           "updates between acting and learning: mean over the trained rows of an update"),
    Metric("policy_lag_updates_max", "mean", "balance", "updates",
           "the largest policy lag among the trained rows of an update"),
    Metric("serving_lag_updates", "distribution", "balance", "updates",
           "age of the parameters that acted on a training batch"),
    *(Metric(f"{stage}_share", "share", "balance", "", f"time of {meaning}")
      for stage, meaning in {
          "acting_environment": "acting: no step has arrived; env servers step, or messages travel",
          "acting_batch": "acting: steps have arrived, but too few for a batch, or no core is free",
          "acting_transfer": "acting: the steps of a batch are copied together",
          "acting_act": "acting: the agent's program runs, and its actions are fetched",
          "acting_wire": "acting: actions are packed and sent",
          "acting_other": "acting: steps are counted, full pages are copied, evaluation is managed",
          "acting_waits": "acting: it waits for learning, so the run is learning-bound",
          "learning_insert": "learning: pages are put into replay",
          "learning_sample": "learning: the host's part of drawing sequences",
          "learning_learn": "learning: the update runs; it samples on the device",
          "learning_publish": "learning: parameters are copied for acting",
          "learning_other": "learning: snapshots are taken, replay is counted",
          "learning_waits": "learning: it waits for acting, so the run is acting-bound",
      }.items()),
    Metric("env_step_ms", "mean", "balance", "ms",
           "time of an env server for one step of one environment, messages included"),
    Metric("env_own_step_ms", "mean", "balance", "ms",
           "the same without messages: of groups whose actions arrived while another group was "
           "stepped. Absent with one group", is_rare=True),
    Metric("late_batches", "count", "balance", "batches",
           "training batches that were acted on at `serving.batch_deadline_seconds`, with fewer "
           "steps than they aim at"),
    Metric("learner_cpu_seconds", "count", "balance", "s",
           "processor time of the learner; per second, the cores that it keeps busy"),
    Metric("learner_cpu_delay_seconds", "count", "balance", "s",
           "how long threads of the learner waited for a free core, in total (Linux only)"),
    Metric("env_servers_cpu_seconds", "count", "balance", "s",
           "processor time of the env servers on the learner's host (Linux only)"),
    Metric("other_cpu_seconds", "count", "balance", "s",
           "processor time of all other programs on the learner's cores, including processes that "
           "an environment starts (Linux only)"),
    Metric("generated_tokens", "count", "balance", "tokens",
           "tokens that a token policy sampled on training slots", is_rare=True),
    Metric("completion_tokens", "mean", "balance", "tokens",
           "length of a completion on a training slot, its end included", is_rare=True),
    Metric("cache_lag_updates", "mean", "balance", "updates",
           "updates between reading a rollout's first token and sampling a token of it: the age of "
           "the oldest part of the cache", is_rare=True),
    Metric("lost_rollouts", "count", "balance", "rollouts",
           "rollouts whose env server or environment failed; their question is asked again",
           is_rare=True),
    # learning
    Metric("loss", "mean", "learning", "", "the loss of an update, over all devices"),
    Metric("gradient_norm", "distribution", "learning", "",
           "global norm of the gradient, before it is clipped"),
    Metric("skipped_updates", "count", "learning", "updates",
           "updates that changed nothing: a loss, gradient, step or running moment was not "
           "finite"),
    Metric("replay_sequences", "gauge", "learning", "sequences",
           "sequences that can be sampled, over all shards"),
    Metric("replay_fill", "gauge", "learning", "",
           "share of the replay that holds experience, 0 to 1, over all shards"),
    Metric("learning_rate", "gauge", "learning", "",
           "configured learning rate; if it decays or the agent emits it, the rate of the updates"),
    Metric("exploration_mean", "gauge", "learning", "",
           "mean exploration of training slots; for R2D2 and Ape-X their ε"),
    Metric("exploration_live_mean", "gauge", "learning", "", "the same, over slots that are live"),
    # agent: those of the bundled agents; another one emits its own.
    *(Metric(name, "mean", "agent", "", meaning) for name, meaning in R2D2.items()),
    *(Metric(name, "mean", "agent", "", meaning, is_rare=True)
      for name, meaning in (IMPALA | PPO | SAC | GRPO).items()),
    # episodes
    Metric("return/training", "extremes", "episodes", "reward",
           "sum of rewards of a training episode"),
    Metric("length/training", "mean", "episodes", "steps", "length of a training episode"),
    Metric("episode/NAME", "mean", "episodes", "",
           "of training episodes, the number of that name in `environment.metrics`", is_rare=True),
    Metric("episodes/training", "gauge", "episodes", "episodes",
           "training episodes that have ended"),
    Metric("episodes/evaluation", "gauge", "episodes", "episodes",
           "evaluation episodes that have ended"),
    # system
    Metric("evaluation_steps", "count", "system", "steps", "environment steps of evaluation slots"),
    Metric("batch_fill", "mean", "system", "",
           "share of a training batch's rows that are not padding"),
    Metric("queue_wait_ms", "distribution", "system", "ms",
           "from the arrival of a batch's first step until the batch is acted on"),
    Metric("inference_ms", "distribution", "system", "ms",
           "from staging a batch until its actions are handed to the connections"),
    Metric("reply_ms", "distribution", "system", "ms",
           "from the arrival of a batch's first step until its actions are handed to the "
           "connections"),
    Metric("env_servers", "gauge", "system", "processes", "env servers that are connected"),
    Metric("slots_live", "gauge", "system", "slots", "environments of env servers that are ready"),
    Metric("slots_unfilled", "gauge", "system", "slots",
           "slots without an environment that is ready"),
    Metric("slots_waiting", "gauge", "system", "slots",
           "live slots whose step the learner has awaited for a second or more"),
    Metric("slots_hung", "gauge", "system", "slots",
           "live slots whose step is later than `serving.step_deadline_seconds`"),
    Metric("slots_quarantined", "gauge", "system", "slots",
           "environments that were disabled because they fail too often; not among the live slots"),
    Metric("environment_failures", "gauge", "system", "failures",
           "failures of environments in this session"),
    Metric("connections_refused", "gauge", "system", "connections",
           "connections refused in this session"),
    Metric("elapsed_seconds", "gauge", "system", "s", "time of the run, over all of its sessions"),
)
# fmt: on

# Lines that are written when something happens: `kind` -> when, and the meaning of each field.
RECORDS: dict[str, tuple[str, dict[str, str]]] = {
    "session": (
        "a session starts to train",
        {
            "env_steps": "training environment steps of the run at its start; lines above this one "
            "with more steps belong to training that was lost, because it was not saved",
            "is_begun_anew": "true if `--resume never` started the run again: no line above "
            "belongs to it",
            "is_other_environment": "true if the run was resumed in another environment: no score "
            "above counts",
        },
    ),
    "evaluation": (
        "a round of evaluation has ended; TensorBoard has `return/evaluation`, `length/evaluation` "
        "and `episode/NAME/evaluation` at the same `env_steps`",
        {
            "mean_return": "of the round's episodes",
            "standard_deviation": "of their returns",
            "returns": "of each episode; those of a token policy in the order of its questions, "
            "which are the same in each round; left out of rounds of more than 10,000 episodes",
            "episodes": "number of episodes",
            "updates": "updates in the parameters that were evaluated",
            "env_steps": "training environment steps when these parameters were made: where the "
            "score belongs in a curve",
            "ended_env_steps": "training environment steps when the round ended",
            "mean_length": "of the round's episodes, in agent steps",
            "metrics": "means of `environment.metrics` over the round's episodes, by name; and "
            "`pass_at_1`, `pass_at_2`, ... if `evaluation.rollouts_per_question` is above 1",
            "is_confirmation": "whether the round was one of `evaluation.confirm_episodes`",
        },
    ),
    "checkpoint": ("a save starts", {"updates": "updates in the checkpoint"}),
    "ledger": (
        "the run has ended and all is at rest; the accounts without the prefix `ledger/`",
        {},
    ),
}


def lines(metric: Metric) -> Iterator[str]:
    """The names of a metric in `metrics.jsonl`."""
    yield metric.name
    if metric.kind == "count":
        yield f"{metric.name}_per_second"
    if metric.kind == "distribution":
        yield from (f"{metric.name}_p{rank}" for rank in PERCENTILES)
    if metric.kind == "extremes":
        yield from (f"{metric.name}_min", f"{metric.name}_max")


def group(line: str) -> str:
    """The group of a name in `metrics.jsonl`; an agent's own metrics are in `agent`."""
    return _GROUPS.get(line, "agent")


_GROUPS = {line: metric.group for metric in METRICS for line in lines(metric)}

# An agent may emit these although they are above; all other names are taken, so that its own
# metrics can be told apart.
_SHARED = frozenset({"loss", "gradient_norm", "learning_rate"})
RESERVED = {line for line, of in _GROUPS.items() if of != "agent"} - _SHARED
RESERVED |= {"kind", "time_seconds"}
