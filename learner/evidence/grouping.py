"""Runs of one configuration, whatever their seed, and what tells configurations apart."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from learner.evidence.measured_run import MeasuredRun
from seedrl.config import OWN_SERVING

# What does not change how a run learns, or must differ between its runs.
_IGNORED = ("seed", *(f"serving.{name}" for name in OWN_SERVING), "logging.", "checkpoint.")
_MOST_NAMED = 4
_ABSENT = "(absent)"


class Group(NamedTuple):
    """Runs that differ in their seed alone.

    Attributes:
      name: of the configuration, with what tells it from the others that are called the same.
      task: what is played.
      runs: by seed.
    """

    name: str
    task: str
    runs: tuple[MeasuredRun, ...]


def group(runs: Iterable[MeasuredRun]) -> list[Group]:
    """Groups runs, in the order in which their first ones come."""
    found: dict[str, list[MeasuredRun]] = {}
    for run in runs:
        found.setdefault(json.dumps(_fields(run), sort_keys=True), []).append(run)
    members = list(found.values())
    return [
        Group(name, task(same[0]), tuple(sorted(same, key=lambda run: run.record.seed or 0)))
        for name, same in zip(_names([same[0] for same in members]), members, strict=True)
    ]


def task(run: MeasuredRun) -> str:
    """The environment that a run plays, with its wrappers."""
    environment = run.config["environment"]
    return " + ".join([environment["id"], *environment.get("wrappers", ())])


def _names(firsts: Sequence[MeasuredRun]) -> list[str]:
    """Of groups, by one run of each."""
    names = []
    for run in firsts:
        alike = [_fields(each) for each in firsts if each.record.config == run.record.config]
        own = _fields(run)
        differing = [
            path
            for path in dict.fromkeys(path for fields in alike for path in fields)
            if len({json.dumps(fields.get(path, _ABSENT)) for fields in alike}) > 1
        ]
        words = [f"{path}={_text(own.get(path, _ABSENT))}" for path in differing[:_MOST_NAMED]]
        more = [f"and {len(differing) - _MOST_NAMED} more"] * (len(differing) > _MOST_NAMED)
        names.append(" ".join([run.record.config, *words, *more]))
    return names


def _fields(run: MeasuredRun) -> dict[str, Any]:
    return {
        path: value
        for path, value in _leaves("", run.config)
        if not any(path == name or (name[-1] == "." and path.startswith(name)) for name in _IGNORED)
    }


def _leaves(path: str, tree: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(tree, dict):
        yield path, tree
        return
    for name, item in tree.items():
        yield from _leaves(f"{path}.{name}" if path else name, item)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "x".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value)
