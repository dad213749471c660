"""Configurations as JSON: saved with a run, and handed from one process to another."""

import dataclasses
import functools
import importlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from seedrl import config_modules, run_files
from seedrl.config import Config
from seedrl.config_tree import decode, encode
from seedrl.config_types import check_types
from seedrl.errors import ConfigError

# Fields of earlier versions, and their names of today.
RENAMED = {
    "agent.earlier_rows": "agent.earlier_steps",
    "agent.kl_stop": "agent.target_kl",
    "agent.piece_rows": "agent.chunk_steps",
    "agent.priority_mix": "agent.priority_eta",
    "agent.target_rate": "agent.tau",
    "agent.trace_lambda": "agent.gae_lambda (PPO), agent.vtrace_lambda (IMPALA)",
    "learning.replay_ratio": "replay.ratio",
    "learning.tolerance_updates": "replay.tolerance_updates",
    "learning.lock_step": 'learning.schedule ("deterministic" for true, "asynchronous" for false)',
    "learning.regime": 'learning.schedule ("deterministic" for "lock_step")',
    "launch.restarts": "automatic: env servers are restarted with a growing pause",
}


def to_json(config: Config) -> str:
    """A readable text from which `from_json` makes an equal configuration.

    A dataclass is an object with its class (`module:qualname`, or `path.py:qualname` for a class of
    the configuration file itself) under "type"; a tuple is a list.

    Raises:
      ConfigError: a field is neither a dataclass, tuple, list, dict with text keys, text, number,
        bool nor None.
    """
    document = {
        "import_from": list(config_modules.import_folders()),
        "config": encode("config", config, _type_name),
    }
    return json.dumps(document, indent=2) + "\n"


def of_run(folder: Path) -> Config:
    """The configuration of the run in this folder, which may be anybody's.

    Raises ConfigError if there is none, or it names code that is not installed and that nobody has
    allowed (`config_modules.allow`).
    """
    try:
        text = run_files.read_regular(folder / run_files.CONFIG).decode(errors="replace")
    except OSError as error:
        raise ConfigError(_absent(folder, error)) from error
    return from_json(text)


def to_allow(text: str) -> list[str]:
    """What `--allow` needs for a saved config: folders, and names of factories from elsewhere."""
    document = json.loads(text)
    folders = [str(folder) for folder in document["import_from"]]
    environment = document["config"]["environment"]
    names = [name for name in (environment["id"], *environment["wrappers"]) if ":" in name]
    outside = [name for name in names if not config_modules.lies_in(name, folders)]
    return [*folders, *dict.fromkeys(outside)]


def require_factories(names: Iterable[str]) -> None:
    """Refuses factories of environments that a saved run names, unless they are allowed.

    An installed one too: some that are installed run what they are given.
    """
    refused = [n for n in names if ":" in n and not config_modules.is_allowed_factory(n)]
    if refused:
        words = " ".join(dict.fromkeys(refused))
        raise ConfigError(
            f"the run's {run_files.CONFIG} names {words}, which is code; if you trust it, add "
            f"--allow {words}"
        )


def _absent(folder: Path, error: OSError) -> str:
    if isinstance(error, PermissionError):
        return f"may not read {error.filename}: it belongs to another user; ask for permission"
    if not folder.exists():
        return f"expected the folder of a run, but there is no {folder}"
    if (folder / run_files.STATUS).exists() and isinstance(error, FileNotFoundError):
        return (
            f"the run in {folder} has not begun to train, so nothing is saved yet; its "
            f"{run_files.STATUS} says how far it came"
        )
    return (
        f"expected the folder of a run with its {run_files.CONFIG}, got {folder} ({error.strerror})"
    )


def from_json(text: str) -> Config:
    """Inverse of `to_json`. Imports the classes that it names: what is installed, or allowed.

    Raises:
      ConfigError: not such a text, a class that cannot be imported or is not allowed
        (`config_modules.allow`), an unknown or a missing field, or a value of another type.
    """
    try:
        document = json.loads(text)
        folders, tree = document["import_from"], document["config"]
        folders = [Path(folder) for folder in folders]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ConfigError(f"expected a saved config in JSON, got {text[:80]!r}") from error
    passed_over = [folder for folder in folders if not config_modules.is_allowed(folder)]
    for folder in folders:
        if folder not in passed_over:
            config_modules.import_from(folder)
    check_names(text)
    config = decode("config", tree, functools.partial(_find_type, passed_over))
    if not isinstance(config, Config):
        raise ConfigError(f"expected a saved Config, got a {type(config).__name__}")
    check_types("config.", config)
    return config


def check_names(text: str) -> None:
    """Refuses a saved config of an earlier version, whose fields had other names.

    Raises:
      ConfigError: in one line, what to change.
    """
    tree = json.loads(text)["config"]
    sections = dict(tree) if isinstance(tree, dict) else {}
    agent = sections.get("agent")
    if not (isinstance(agent, dict) and str(agent.get("type")).startswith("seedrl.")):
        sections.pop("agent", None)  # a user's own agent may have a field of any name
    renamed = [
        f"{old} is now {new}"
        for old, new in RENAMED.items()
        for section, _, name in [old.partition(".")]
        if name in (sections.get(section) or {})
    ]
    if renamed:
        raise ConfigError(
            f"expected a config of this version, got fields with earlier names: "
            f"{', '.join(renamed)}; rename them in config.json or, to train on, start a new workdir"
        )


def agent_classes(text: str) -> dict[str, str]:
    """The classes of a saved config's agent and of what it consists of, by their paths.

    Imports none of them: `{"agent.type": "seedrl.agents.r2d2:R2D2Config"}`.
    """
    return dict(_classes("agent", json.loads(text)["config"]["agent"]))


def is_same_class(name: str, other: str) -> bool:
    """Whether two of `agent_classes` are one; the config file that holds it may be another one."""
    (module, _, kind), (other_module, _, other_kind) = name.rpartition(":"), other.rpartition(":")
    are_files = module.endswith(".py") and other_module.endswith(".py")
    return kind == other_kind and (are_files or module == other_module)


def _classes(path: str, tree: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(tree, dict):
        return
    kind = tree.get("type")
    if isinstance(kind, str) and ":" in kind:  # neither a list nor a dict
        yield f"{path}.type", kind
    for name, item in tree.items():
        yield from _classes(f"{path}.{name}", item)


def _type_name(kind: type) -> str:
    return f"{kind.__module__.removeprefix(config_modules.FILE_PREFIX)}:{kind.__qualname__}"


def _find_type(passed_over: Sequence[Path], path: str, name: Any) -> type:
    module_name, _, qualname = str(name).rpartition(":")
    try:
        is_file = module_name.endswith(".py")
        found: Any = (
            config_modules.load_module(_existing(module_name))
            if is_file
            else importlib.import_module(module_name)
        )
        for part in qualname.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        words = "" if "--allow" in str(error) else " ".join(map(str, passed_over))
        hint = f"; if you trust what lies there, add --allow {words}" if words else ""
        raise ConfigError(f"{path}: cannot import its class {name}: {error}{hint}") from error
    if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
        raise ConfigError(f"{path}: expected {name} to be a dataclass")
    return found


def _existing(file_name: str) -> Path:
    path = Path(file_name)
    if not config_modules.is_allowed(path.parent):
        raise ConfigError(
            f"{path} is code that is not installed; if you trust it, add --allow {path.parent}"
        )
    if not path.is_file():
        raise ConfigError(
            f"expected the config file that a class stands in, but there is no {path}"
        )
    return path
