"""Configurations as files: the Python that makes one, and the JSON that is saved with a run."""

import dataclasses
import difflib
import importlib
import importlib.util
import json
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import seedrl
from seedrl.config import Config
from seedrl.config_tree import decode, encode
from seedrl.errors import ConfigError

_FILE = "config-file:"  # start of the module names of configuration files
_ABSENT = object()
_folders: list[str] = []


def load(name_or_path: str | Path) -> Config:
    """The configuration of a Python file with `config() -> Config`.

    The file may import from its own folder, like a script.

    Args:
      name_or_path: the path of such a file (it ends in `.py`), or the name of a bundled one.

    Raises:
      ConfigError: there is no such file or name, or the file raises or has no fitting `config()`.
    """
    path = _resolve(str(name_or_path))
    if path.parent != bundled_folder():
        _import_from(path.parent)
    function = getattr(_load_module(path), "config", None)
    if not callable(function):
        raise ConfigError(f"{path}: expected a function `config()` that returns a Config, got none")
    try:
        config = function()
    except Exception as error:
        raise ConfigError(_one_line(path, error)) from error
    if not isinstance(config, Config):
        raise ConfigError(f"{path}: expected a Config from config(), got {type(config).__name__}")
    return config


def bundled_folder() -> Path:
    """The folder of the bundled configurations, in a checkout and in an installed wheel."""
    package = Path(seedrl.__file__).resolve().parent
    installed = package / "configs"
    return installed if installed.is_dir() else package.parent / "configs"


def bundled_names() -> list[str]:
    """The names of the bundled configurations, sorted."""
    return sorted(path.stem for path in bundled_folder().glob("*.py") if path.stem[0] != "_")


def import_folders() -> tuple[str, ...]:
    """The folders of the files loaded so far: other processes need them on their path, too."""
    return tuple(_folders)


def to_json(config: Config) -> str:
    """A readable text from which `from_json` makes an equal configuration.

    A dataclass is an object with its class (`module:qualname`, or `path.py:qualname` for a class of
    the configuration file itself) under "type"; a tuple is a list.

    Raises:
      ConfigError: a field is neither a dataclass, tuple, list, dict with text keys, text, number,
        bool nor None.
    """
    document = {"import_from": list(_folders), "config": encode("config", config, _type_name)}
    return json.dumps(document, indent=2) + "\n"


def from_json(text: str) -> Config:
    """Inverse of `to_json`. Imports the classes that it names.

    Raises:
      ConfigError: not such a text, a class that cannot be imported, an unknown or a missing field.
    """
    try:
        document = json.loads(text)
        folders, tree = document["import_from"], document["config"]
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"expected a saved config in JSON, got {text[:80]!r}") from error
    for folder in folders:
        _import_from(Path(folder))
    config = decode("config", tree, _find_type)
    if not isinstance(config, Config):
        raise ConfigError(f"expected a saved Config, got a {type(config).__name__}")
    return config


def difference(expected: Any, got: Any) -> list[str]:
    """One line per field that differs: `agent.unroll: expected 80, got 100`; empty if equal."""
    left, right = dict(_leaves("", expected)), dict(_leaves("", got))
    return [
        f"{path}: expected {_show(left.get(path, _ABSENT))}, got {_show(right.get(path, _ABSENT))}"
        for path in [*left, *(path for path in right if path not in left)]
        if left.get(path, _ABSENT) != right.get(path, _ABSENT)
    ]


def _resolve(name_or_path: str) -> Path:
    if name_or_path.endswith(".py"):
        path = Path(name_or_path).resolve()
        if not path.is_file():
            raise ConfigError(f"expected a config file, but there is no {name_or_path}")
        return path
    names = bundled_names()
    if name_or_path in names:
        return bundled_folder() / f"{name_or_path}.py"
    close = difflib.get_close_matches(name_or_path, names, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise ConfigError(
        f"unknown config {name_or_path!r}: {hint}expected the path of a .py file or one of "
        f"{', '.join(names)}"
    )


def _import_from(folder: Path) -> None:
    text = str(folder)
    if text not in _folders:
        _folders.append(text)
    if text not in sys.path:
        sys.path.insert(0, text)


def _load_module(path: Path) -> ModuleType:
    # The path makes the name unique: a/config.py and b/config.py can be loaded side by side. A file
    # runs once, so that the classes in it stay the same classes.
    name = f"{_FILE}{path}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, f"{path} is not a Python file"
    module = importlib.util.module_from_spec(spec)
    # Before the file runs: dataclasses look up the module in which they stand.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ConfigError(_one_line(path, error)) from error
    return module


def _one_line(path: Path, error: Exception) -> str:
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{path}:{error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    place = f"{path}:{lines[-1]}" if lines else str(path)
    kind = "" if isinstance(error, ConfigError) else f"{type(error).__name__}: "
    return f"{place}: {kind}{' '.join(str(error).split())}"


def _type_name(kind: type) -> str:
    return f"{kind.__module__.removeprefix(_FILE)}:{kind.__qualname__}"


def _find_type(path: str, name: Any) -> type:
    module_name, _, qualname = str(name).rpartition(":")
    try:
        is_file = module_name.endswith(".py")
        found: Any = (
            _load_module(_resolve(module_name)) if is_file else importlib.import_module(module_name)
        )
        for part in qualname.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{path}: cannot import its class {name}: {error}") from error
    if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
        raise ConfigError(f"{path}: expected {name} to be a dataclass")
    return found


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not dataclasses.is_dataclass(value):
        yield path, value
        return
    yield f"{path}.type" if path else "type", type(value)
    for field in dataclasses.fields(value):
        yield from _leaves(f"{path}.{field.name}".lstrip("."), getattr(value, field.name))


def _show(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    return value.__name__ if isinstance(value, type) else repr(value)
