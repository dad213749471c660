"""What can happen in a run: the closed list of the kinds of events, the source of docs/events.md.

A test compares this list with what the code says, in both directions, fields included.
"""

from typing import Literal, NamedTuple

Kind = Literal[
    "started",
    "resumed",
    "begins_beside_best",
    "initialized",
    "compiling",
    "compiled",
    "first_update",
    "evaluation",
    "nominated",
    "confirming",
    "confirmed",
    "saved",
    "save_failed",
    "updates_skipped",
    "sequences_stale",
    "shards_empty",
    "metrics_absent",
    "slots_filled",
    "waiting",
    "steps_again",
    "server_joined",
    "server_returned",
    "server_left",
    "server_refused",
    "server_hung",
    "server_steps_again",
    "environment_failed",
    "environment_quarantined",
    "ended",
]


class EventKind(NamedTuple):
    """A kind of event.

    Attributes:
      kind: its name.
      meaning: when it is said.
      fields: name -> meaning, of the numbers and names that its text tells in words.
      is_problem: whether a person should look at it.
    """

    kind: Kind
    meaning: str
    fields: dict[str, str]
    is_problem: bool = False


_SERVER = {"server": "its name, `host:pid`", "environments": "how many of it get steps"}
_SHARES = {
    **_SERVER,
    "training": "of them, those whose experience is learned from",
    "evaluation": "of them, those that measure",
}
_ROUND = {
    "mean_return": "of the round",
    "episodes": "in it",
    "updates": "updates in the parameters that were evaluated",
}
_GROUPS = {**_SERVER, "environments": "of these groups", "groups": "numbers of its groups"}

EVENTS: tuple[EventKind, ...] = (
    EventKind(
        "started",
        "the learner serves env servers from now on",
        {"address": "where", "devices": "what it learns on", "workdir": "the run folder"},
    ),
    EventKind(
        "resumed",
        "the run continues from a checkpoint",
        {
            "updates": "in the checkpoint",
            "env_steps": "in the checkpoint",
            "age_seconds": "since it was saved",
            "path": "its folder",
        },
    ),
    EventKind(
        "begins_beside_best",
        "the run begins again: a session before was ended before its first checkpoint, and left "
        "its best parameters",
        {
            "updates": "in them",
            "mean_return": "of their round",
            "path": "their folder, which stays until a round scores higher",
        },
    ),
    EventKind(
        "initialized",
        "a new run has taken over the parameters of another one (`--init-from`)",
        {"updates": "in that run's checkpoint", "path": "its folder"},
    ),
    EventKind(
        "compiling",
        "the agent is compiled from now on; acting begins before learning is done",
        {"replay_bytes": "size of the replay on each device"},
    ),
    EventKind("compiled", "everything is compiled", {"seconds": "since `compiling`"}),
    EventKind(
        "first_update",
        "replay has filled, and the first update of the session is applied",
        {"updates": "of the run by then"},
    ),
    EventKind(
        "evaluation",
        "a round of evaluation has ended",
        {**_ROUND, "is_confirmation": "whether it was one that should confirm"},
    ),
    EventKind(
        "nominated",
        "a round has reached the target; the same parameters play `evaluation.confirm_episodes`",
        {name: _ROUND[name] for name in ("mean_return", "updates")},
    ),
    EventKind(
        "confirming",
        "they are still playing; every 10 s",
        {
            "episodes": "that have ended",
            "confirm_episodes": "how many there shall be",
            "mean_return": "of those that have ended; null before the first",
        },
    ),
    EventKind("confirmed", "they have reached it again: the run ends", _ROUND),
    EventKind(
        "saved",
        "a checkpoint is durable",
        {"path": "its folder", "updates": "in it", "seconds": "that it took"},
    ),
    EventKind(
        "save_failed",
        "a checkpoint could not be written, or was not within `logging.stuck_seconds`; training "
        "continues",
        {"reason": "why"},
        is_problem=True,
    ),
    EventKind(
        "updates_skipped",
        "updates were not finite and changed nothing; at most once a minute",
        {"updates": "how many since the last time"},
        is_problem=True,
    ),
    EventKind(
        "sequences_stale",
        "sequences were dropped, for they were older than `max_lag_updates` allows; at most "
        "once a minute",
        {"sequences": "how many since the last time"},
        is_problem=True,
    ),
    EventKind(
        "shards_empty",
        "learning has begun without some of its devices: the env servers of their slots are not "
        "there; each joins with its first experience",
        {"shards": "how many devices"},
        is_problem=True,
    ),
    EventKind(
        "metrics_absent",
        "none of the first episodes has reported some of `environment.metrics`; said once",
        {"names": "of these metrics", "episodes": "that have ended"},
        is_problem=True,
    ),
    EventKind(
        "slots_filled",
        "how many slots have an env server, once that has not changed for 10 s; at first only "
        "where some have none",
        {"filled": "of both roles", "slots": "of both roles, in all"},
    ),
    EventKind(
        "waiting",
        "no environment has stepped for 10 s, 20 s, and so on",
        {"seconds": "for how long", "waiting_for": "whom, in words"},
        is_problem=True,
    ),
    EventKind("steps_again", "they step again after that", {"seconds": "how long they did not"}),
    EventKind("server_joined", "an env server is ready, and steps from now on", _SHARES),
    EventKind(
        "server_returned",
        "an env server is ready that has left in this session of the learner, or that reports "
        "what such a one had sent (`--sent-log`); not after a mere failure of its environment, and "
        "not when the learner itself was started again: that is `server_joined`",
        {**_SHARES, "seconds": "how long it was away"},
    ),
    EventKind(
        "server_left",
        "an env server's connection has ended, before the run does",
        {**_SERVER, "reason": "why"},
        is_problem=True,
    ),
    EventKind(
        "server_refused",
        "an env server got no slots, or cannot build the environment; once for each reason",
        {"server": "its name, `host:pid`", "reason": "why"},
        is_problem=True,
    ),
    EventKind(
        "server_hung",
        "groups have owed a step for longer than `serving.step_deadline_seconds`",
        {**_GROUPS, "seconds": "for how long"},
        is_problem=True,
    ),
    EventKind("server_steps_again", "groups that hung have sent a step", _GROUPS),
    EventKind(
        "environment_failed",
        "an environment has raised an exception; its env server builds all of its own again. Of "
        "many failures one in 30 seconds is told",
        {
            "server": "name of its env server",
            "failures": "of that env server's environments so far",
            "reason": "type and text of the exception, and where",
        },
        is_problem=True,
    ),
    EventKind(
        "environment_quarantined",
        "an environment has failed more often than `environment.failures_per_minute` or "
        "`failures_per_hour` allow: its env server goes on without it",
        {
            "server": "name of its env server",
            "quarantined": "environments that this env server goes on without",
            "reason": "how the newest of them has failed last",
        },
        is_problem=True,
    ),
    EventKind("ended", "the run is over", {"reason": "why, in words"}),
)

PROBLEMS = frozenset(event.kind for event in EVENTS if event.is_problem)
