"""Configurations as files: the Python that makes one, or the JSON that is saved with a run.

The user wants to run the code that a command line names. The directory of a run may be somebody
else's: its classes are looked up in seedrl and among the modules that are imported already; all
other code needs `allow`.
"""

import dataclasses
import fnmatch
import importlib.util
import json
import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from seedrl import run_files
from seedrl.config import Config
from seedrl.errors import ConfigError, in_one_line
from seedrl.fields import check_fields
from seedrl.hints import did_you_mean, missing_extra, own_place

# Fields of earlier versions, and their names of today.
RENAMED = {
    "agent.earlier_rows": "agent.earlier_steps",
    "agent.epochs": "a field of PPO only: GRPO learns from a batch once (delete the field)",
    "agent.learning_rate_decay_updates": "agent.learning_rate_decay_steps (environment steps)",
    "agent.network.dueling": "gone: Q-networks are dueling (delete the field)",
    "agent.entropy_cost_end": "gone: the cost falls to 0 (delete the field)",
    "agent.optimizer": "gone: Ape-X learns by Adam (delete the field)",
    "agent.optimizer_epsilon": "agent.adam_epsilon",
    "agent.rmsprop_decay": "gone: Ape-X learns by Adam (delete the field)",
    "agent.piece_rows": "agent.chunk_steps",
    "agent.minibatches": "a field of PPO only: GRPO learns from a batch at once (delete the field)",
    "agent.priority_mix": "agent.priority_eta",
    "agent.target_rate": "agent.tau",
    "agent.trace_lambda": "agent.gae_lambda (PPO), agent.vtrace_lambda (IMPALA)",
    "learning.replay_ratio": "replay.ratio",
    "learning.tolerance_updates": "replay.tolerance_updates",
    "learning.lock_step": 'learning.schedule ("deterministic" for true, "asynchronous" for false)',
    "learning.regime": 'learning.schedule ("deterministic" for "lock_step")',
    "learning.record": "gone: inputs are no longer recorded (delete the field)",
    "environment.failures_per_minute": "gone: environment.failures_per_hour (delete the field)",
    "launch.restarts": "automatic: env servers are restarted with a growing pause",
}
_FILE_PREFIX = "config-file:"  # start of the module names of configuration files
_OWN_FACTORIES = "envs_server.envs.*"

# Trusted folders (of config files, and allowed ones), in the order in which they are on the path.
_folders: list[str] = []
_allowed_names: set[str] = set()
# Those of the process that saved the configuration read last, which are not trusted here.
_saved_folders: list[str] = []
# The files of runs that this process has read; the current folder may be that of one.
_read_files: list[Path] = []
# Held while a configuration file runs: another thread that loads it must not find half a module.
# The file may itself load another one.
_running = threading.RLock()


# Files.


def load(name_or_path: str | Path) -> Config:
    """The configuration of a Python file with `config() -> Config`, or of a run's `config.json`.

    Takes the path of such a file (`.py` or `.json`), which may import from its own folder like a
    script, or the name of a bundled one. Raises ConfigError: there is no such file or name, the
    file raises or has no fitting `config()`, or a field holds a value of another type. So it does
    if the directory of a run, which may be anybody's, names code that is not allowed (`allow`).
    """
    # By the name that was given: in a run's directory it may be a link to code.
    if str(name_or_path).endswith(".json"):
        return _read_saved(Path(name_or_path).absolute())
    path = _resolve(str(name_or_path))
    if path.parent != bundled_folder():
        import_from(path.parent)
    function = getattr(_module_of(path), "config", None)
    if not callable(function):
        raise ConfigError(f"{path}: expected a function `config()` that returns a Config, got none")
    try:
        config = function()
        if not isinstance(config, Config):
            raise ConfigError(f"expected a Config from config(), got {type(config).__name__}")
        check_fields("", config)
    except (Exception, SystemExit) as error:
        raise ConfigError(_with_place(path, error)) from error
    return config


def bundled_folder() -> Path:
    package = Path(__file__).resolve().parent
    installed = package / "configs"  # in a wheel
    return installed if installed.is_dir() else package.parent / "configs"


def bundled_names() -> list[str]:
    return sorted(path.stem for path in bundled_folder().glob("*.py"))


def summary(name: str) -> str:
    """The first line of a bundled configuration's docstring, without a stop; nothing is run."""
    source = (bundled_folder() / f"{name}.py").read_text()
    return source.partition("\n")[0].strip('".')


def _resolve(name_or_path: str) -> Path:
    if name_or_path.endswith(".py"):
        path = Path(name_or_path).resolve()
        if not path.is_file():
            raise ConfigError(f"expected a config file, but there is no {name_or_path}")
        return path
    names = bundled_names()
    if name_or_path not in names:
        if Path(name_or_path, run_files.CONFIG).is_file():
            raise ConfigError(
                f"expected a config, got the directory of a run: seedrl resume {name_or_path:.200} "
                f"continues it; its config is {name_or_path:.200}/{run_files.CONFIG}"
            )
        raise ConfigError(
            f"unknown config {name_or_path!r:.200}: expected a name that `seedrl configs` lists, "
            "or the path of a .py or .json file (of a run "
            f"{name_or_path:.200}/{run_files.CONFIG}){did_you_mean(name_or_path, names)}"
        )
    return bundled_folder() / f"{name_or_path}.py"


# JSON.


def to_json(config: Config) -> str:
    """A readable text from which `from_json` makes an equal configuration.

    A dataclass is an object with its class (`module:qualname`, or `path.py:qualname` for a class of
    the configuration file itself) under "type"; a tuple is a list.

    Raises ConfigError: a field is neither a dataclass, tuple, text, number, bool nor None.
    """
    document = {"import_from": _folders, "config": _encode("config", config)}
    return json.dumps(document, indent=2) + "\n"


def from_json(text: str) -> Config:
    """Inverse of `to_json`. Imports only modules of seedrl, and those that are allowed.

    Raises ConfigError: not such a text, a class that is not there or not allowed (`allow`), an
    unknown or a missing field, or a value of another type.
    """
    folders, tree = _document(text)
    _saved_folders[:] = folders
    config = _decode("config", tree)
    if not isinstance(config, Config):
        raise ConfigError(f"expected a saved Config, got a {type(config).__name__}")
    check_fields("config.", config)
    return config


def _read_saved(path: Path) -> Config:
    _read_files.append(path)
    try:
        return from_json(run_files.read_regular(path).decode())
    except OSError as error:
        text = f"expected the config of a run: {in_one_line(error)}"
        if isinstance(error, FileNotFoundError) and path.name == run_files.CONFIG:
            text = f"expected the directory of a run, got {path.parent}, which has no {path.name}"
        raise ConfigError(text) from error
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error


def changes(before: str, after: str) -> dict[str, tuple[str, str]]:
    """The fields that differ in two saved configs, as text: `{"agent.unroll": ("80", "9")}`.

    Classes are fields named `type`; a class of a config file stays the same if that file moves.
    Imports no code that they name.
    """

    # Shown as they are compared: without the folder of a config file.
    left, right = (
        {path: re.sub(r"^'.*\.py:", "'*.py:", repr(value)) for path, value in _leaves("", tree)}
        for _, tree in (_document(before), _document(after))
    )
    return {
        path: (left.get(path, "nothing"), right.get(path, "nothing"))
        for path in left | right
        if left.get(path) != right.get(path)
    }


def difference(expected: str, got: str) -> list[str]:
    """One line per field that differs in two saved configs: `agent.unroll: expected 80, got 9`."""
    found = changes(expected, got)
    return [f"{path}: expected {left}, got {right}" for path, (left, right) in found.items()]


def _leaves(path: str, tree: Any) -> Iterator[tuple[str, Any]]:
    # Fields of dataclasses, and their classes as `type`; what is below another value is part of it.
    kind = tree.get("type") if isinstance(tree, dict) else None
    if isinstance(kind, str) and ":" in kind:
        for name, item in tree.items():
            yield from _leaves(f"{path}.{name}".lstrip("."), item)
    else:
        yield path, tree


def _document(text: Any) -> tuple[list[str], Any]:
    # The trusted folders of the process that saved it, and the tree.
    try:
        document = run_files.object_of(text)
        folders, tree = document["import_from"], document["config"]
        if not all(isinstance(folder, str) for folder in folders):
            raise ValueError
        return list(folders), tree
    except (ValueError, TypeError, KeyError):
        raise ConfigError(f"expected a saved config in JSON, got {text!r:.80}") from None


def _encode(path: str, value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if field.init]
        if "type" in names:  # has the class
            raise ConfigError(f"{path}.type: expected another name of this field, such as `kind`")
        fields = {name: _encode(f"{path}.{name}", getattr(value, name)) for name in names}
        kind = type(value)
        module = kind.__module__.removeprefix(_FILE_PREFIX)  # of a class of a config file its path
        return {"type": f"{module}:{kind.__qualname__}", **fields}
    if type(value) is tuple:
        return [_encode(f"{path}.{index}", item) for index, item in enumerate(value)]
    if value is None or type(value) in (str, bool, int, float):
        return value
    raise ConfigError(
        f"{path}: expected a dataclass, tuple, text, number, bool or None, which can be saved with "
        f"the run, got a {type(value).__name__}"
    )


def _decode(path: str, tree: Any) -> Any:
    if isinstance(tree, list):
        return tuple(_decode(f"{path}.{index}", item) for index, item in enumerate(tree))
    if not isinstance(tree, dict):
        return tree
    fields = dict(tree)
    # Before its fields: what names no class of ours is refused as a whole.
    found = _find_type(path, fields.pop("type", None))
    values = {name: _decode(f"{path}.{name}", item) for name, item in fields.items()}
    try:
        return found(**values)
    # A class may be a user's own, and raise anything.
    except Exception as error:
        raise ConfigError(f"{path}: {_described(error)}") from error


def _find_type(path: str, name: Any) -> Any:
    # Importing runs code: only trusted modules are imported.
    if not isinstance(name, str):
        raise ConfigError(f'{path}: expected a class under "type", got {name!r:.80}')
    module_name, _, qualname = name.rpartition(":")
    try:
        found: Any = _trusted_module(module_name, name)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"{path}: cannot import its class {name}: {error}") from error
    for part in qualname.split("."):
        # Not getattr: a module may import others for a name that is asked of it.
        found = getattr(found, "__dict__", {}).get(part)
    if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
        raise ConfigError(f"{path}: expected its class {name} to be a dataclass")
    return found


# Code.


def allow(*allowed: str | Path) -> None:
    """Admits, in this process, code that the files of a run name.

    Folders admit the Python files directly in them, as does one of such files; patterns (`*`, `?`)
    admit names of environments' factories and of classes, `package.module:name`.
    """
    for each in allowed:
        if not str(each):  # would be the current folder, which may be the run's
            raise ConfigError("--allow: expected directories or names of code, got ''")
        path = Path(each).resolve()
        if path.exists():
            import_from(path if path.is_dir() else path.parent)
        else:
            _allowed_names.add(str(each))
            import_factories([str(each)])


def to_allow(text: str) -> list[str]:
    """What `--allow` needs for a saved config: folders, and names of code from elsewhere."""
    folders, tree = _document(text)
    fields = dict(_leaves("", tree))
    kinds = [value for path, value in fields.items() if path.rpartition(".")[2] == "type"]
    names = [kind for kind in kinds if not kind.startswith("seedrl.") and ".py:" not in kind]
    factories = [fields.get("environment.id"), *(fields.get("environment.wrappers") or ())]
    names = [each for each in factories if ":" in str(each)] + names
    outside = [name for name in names if not _lies_in(name, folders)]
    return [*folders, *dict.fromkeys(outside)]


def require_factories(names: Iterable[str]) -> None:
    """Refuses factories of environments that a saved run names, unless they are allowed.

    Installed ones too: some installed functions run their arguments.
    """
    refused = [
        name for name in names if ":" in name and not (_is_named(name) or _lies_in(name, _folders))
    ]
    if refused:
        needed = dict.fromkeys(map(_needed, refused))
        raise ConfigError(
            f"the run's {run_files.CONFIG} names {' '.join(dict.fromkeys(refused))}, which is code;"
            f" if you trust it, add --allow {' '.join(needed)}"
        )


def import_folders() -> tuple[str, ...]:
    """The trusted folders, in the order in which they are on the path."""
    return tuple(_folders)


def import_from(folder: Path) -> None:
    """Puts `folder` on the path of imports, after the folders that were given before it.

    So a configuration's own folder comes before those of the configurations that it loads, and
    before the current folder, whatever PYTHONPATH is. `path_for_children` has the same order.
    """
    text = str(folder)
    if text not in _folders:
        _folders.append(text)
    sys.path[:] = [*_folders, *(entry for entry in sys.path if entry not in _folders)]


def import_factories(names: Iterable[str]) -> None:
    """Lets a run remember the current folder if modules there have factories of its environments.

    For names of a command line or a user's config file: they are looked up here, and must be found
    when the run is played from another folder.
    """
    here = Path.cwd()
    own = [name for name in names if not fnmatch.fnmatchcase(name, _OWN_FACTORIES)]
    if any(":" in name and _lies_directly_in(name, here) for name in own):
        import_from(here)


def folders_for_children() -> list[str]:
    """The folders that a child process imports from: the same ones, then the current one.

    Not the current one if this process plays or resumes a run: a `random.py` or `sitecustomize.py`
    in the run's directory would be run.
    """
    here = [] if _read_files else [os.getcwd()]
    # An empty entry, and an empty PYTHONPATH has one, would be the current folder too.
    own = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return list(dict.fromkeys([*_folders, *here, *own]))


def path_for_children() -> str:
    """`folders_for_children` as the PYTHONPATH of a process, for `python -P`.

    Without -P another folder would come before them.
    """
    return os.pathsep.join(folders_for_children())


def _trusted_module(name: str, class_name: str) -> ModuleType:
    if name.endswith(".py"):
        if str(Path(name).parent.resolve()) in _folders:
            return _module_of(Path(name))
        hint = str(Path(name).parent)
    elif name in sys.modules:
        return importlib.import_module(name)  # waits, if another thread is still importing it
    else:
        for folder in map(Path, _folders):
            if _lies_directly_in(name, folder):
                import_from(folder)  # a namesake may have come before it on the path since
                return importlib.import_module(name)
        is_ours = name.startswith("seedrl.") and not name.endswith("__main__")
        if is_ours or _is_named(class_name):
            return importlib.import_module(name)
        hint = _needed(class_name)
    raise ConfigError(
        f"{name} is code of neither seedrl nor an allowed directory; if you trust it, add --allow "
        f"{hint}"
    )


def _needed(name: str) -> str:
    # What `--allow` needs for it. A module in a folder is found only if the folder is allowed.
    return next((each for each in _saved_folders if _lies_directly_in(name, Path(each))), name)


def _is_named(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in _allowed_names)


def _lies_in(name: str, folders: Iterable[str | Path]) -> bool:
    # Code that comes with seedrl lies in any of them.
    return fnmatch.fnmatchcase(name, _OWN_FACTORIES) or any(
        _lies_directly_in(name, Path(folder)) for folder in folders
    )


def _lies_directly_in(name: str, folder: Path) -> bool:
    top = name.partition(":")[0].partition(".")[0]
    return bool(top) and ((folder / f"{top}.py").is_file() or (folder / top).is_dir())


def _module_of(path: Path) -> ModuleType:
    # The path makes the name unique: a/config.py and b/config.py can be loaded side by side. A file
    # runs once, so that the classes in it stay the same classes.
    name = f"{_FILE_PREFIX}{path}"
    with _running:
        return sys.modules[name] if name in sys.modules else _run(name, path)


def _run(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, f"{path} is not a Python file"
    module = importlib.util.module_from_spec(spec)
    # Before the file runs: dataclasses look up the module in which they stand.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ConfigError(_with_place(path, error)) from error
    return module


def _with_place(path: Path, error: BaseException) -> str:
    # The place is in a user's own file, not in ours where a mistake may show first.
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}: {error.msg}"
    place = own_place(error) or str(path)
    if isinstance(error, ImportError) and (missing := missing_extra(error)):
        return f"{place}: {missing}"
    return f"{place}: {_described(error)}"


def _described(error: BaseException) -> str:
    # A field of an earlier version is one that the class does not know today.
    text = " ".join(str(error).split())
    if unknown := re.search(r"unexpected keyword argument '(\w+)'", text):
        renamed = [old for old in RENAMED if old.endswith(f".{unknown[1]}")]
        text += "".join(f"; {old} is now {RENAMED[old]}" for old in renamed)
    return text if isinstance(error, ConfigError) else f"{type(error).__name__}: {text}"
