"""A grid of runs as a TOML file: configurations x options x seeds."""

import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seedrl.errors import ConfigError

_KEYS = {"configs": list, "seeds": list, "options": dict, "vary": dict}
# What the experiment itself gives each run.
_ITS_OWN = {"workdir": "--workdir", "seed": "seeds", "resume": "the same command again"}
_LONGEST_NAME = 200
_UNFIT = re.compile(r"[^\w.+,-]+")  # for the name of a folder


class PlannedRun(NamedTuple):
    """A run of a grid.

    Attributes:
      name: of its folder: configuration, what varies, and seed.
      words: of `seedrl train`, without its folder.
    """

    name: str
    words: tuple[str, ...]


def read_grid(path: Path) -> list[PlannedRun]:
    """The runs of a grid: all seeds of a configuration and its options, then the next.

    A configuration's path is relative to the file. Raises ConfigError, in one line.
    """
    try:
        grid = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"expected a grid, a TOML file, got {path}: {reason}") from error
    try:
        runs = list(_runs(grid, path.parent))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    return runs


def _runs(grid: Mapping[str, Any], folder: Path) -> Iterator[PlannedRun]:
    _check(grid)
    fixed = [
        word for name, value in _leaves(grid.get("options", {})) for word in _flag(name, value)
    ]
    varied = dict(_leaves(grid.get("vary", {})))
    for name, values in varied.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"vary.{name}: expected a list of values, got {values!r}")
    names = set()
    for config, *values in itertools.product(grid["configs"], *varied.values()):
        options = dict(zip(varied, values, strict=True))
        own = [word for name, value in options.items() for word in _flag(name, value)]
        for seed in grid["seeds"]:
            name = _name(config, options, seed)
            if name in names:
                raise ConfigError(f"expected runs that differ, got two that would be called {name}")
            names.add(name)
            yield PlannedRun(name, (_found(config, folder), "--seed", str(seed), *fixed, *own))


def _check(grid: Mapping[str, Any]) -> None:
    for key, value in grid.items():
        if key not in _KEYS:
            raise ConfigError(f"expected {', '.join(_KEYS)}, got {key}")
        if not isinstance(value, _KEYS[key]):
            kind = "a list" if _KEYS[key] is list else "a table"
            raise ConfigError(f"{key}: expected {kind}, got {value!r}")
    _check_list(grid, "configs", str, "names of bundled configs, or paths of .py or .json files")
    _check_list(grid, "seeds", int, "whole numbers")
    for table in ("options", "vary"):
        for name, _ in _leaves(grid.get(table, {})):
            if (where := _ITS_OWN.get(name)) is not None:
                raise ConfigError(f"{table}.{name}: each run has its own; see {where}")


def _check_list(grid: Mapping[str, Any], key: str, kind: type, what: str) -> None:
    values = grid.get(key, [])
    if not values or not all(type(value) is kind for value in values):
        raise ConfigError(f"{key}: expected a list of {what}, got {values!r}")


def _leaves(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Options by their names, with or without quotes: `replay.ratio = 4` makes a table in TOML."""
    for key, value in table.items():
        name = (f"{path}.{key}" if path else key).replace("_", "-")
        if isinstance(value, Mapping):
            yield from _leaves(value, name)
        else:
            yield name, value


def _flag(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        section, dot, last = name.rpartition(".")
        return [f"--{name}" if value else f"--{section}{dot}no-{last}"]
    values = value if isinstance(value, list) else [value]
    # One line, as a run records its command: it is compared with that.
    return [f"--{name}", *(str(each).replace("\n", " ") for each in values)]


def _name(config: str, options: Mapping[str, Any], seed: int) -> str:
    words = [f"{option}={_text(value)}" for option, value in options.items()]
    name = "__".join([Path(config).stem, *words, f"seed={seed}"])
    if len(name) > _LONGEST_NAME:
        raise ConfigError(
            f"vary: expected fewer or shorter values: a run's folder would be called {name}"
        )
    return name


def _text(value: Any) -> str:
    values: Sequence[Any] = value if isinstance(value, list) else [value]
    return _UNFIT.sub("_", "x".join(map(str, values)))


def _found(config: str, folder: Path) -> str:
    # Absolute, so that the run is the same one from wherever the command is given.
    return str((folder / config).resolve()) if config.endswith((".py", ".json")) else config
