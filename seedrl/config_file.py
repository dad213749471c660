"""Configurations as files: the Python that makes one, or the JSON that was saved with a run."""

import ast
import difflib
from pathlib import Path

import seedrl
from seedrl import config_modules
from seedrl.config import Config
from seedrl.config_json import from_json
from seedrl.config_types import check_types
from seedrl.errors import ConfigError
from seedrl.run_files import CONFIG


def load(name_or_path: str | Path) -> Config:
    """The configuration of a Python file with `config() -> Config`, or of a run's `config.json`.

    The Python file may import from its own folder, like a script.

    Args:
      name_or_path: the path of such a file (it ends in `.py` or `.json`), or the name of a bundled
        one.

    Raises:
      ConfigError: there is no such file or name, the file raises or has no fitting `config()`, or a
        field of what it gives holds a value of another type.
    """
    path = _resolve(str(name_or_path))
    if path.suffix == ".json":
        return _saved(path)
    if path.parent != bundled_folder():
        config_modules.import_from(path.parent)
    function = getattr(config_modules.load_module(path), "config", None)
    if not callable(function):
        raise ConfigError(f"{path}: expected a function `config()` that returns a Config, got none")
    try:
        config = function()
    except (Exception, SystemExit) as error:
        raise ConfigError(config_modules.describe(path, error)) from error
    if not isinstance(config, Config):
        raise ConfigError(f"{path}: expected a Config from config(), got {type(config).__name__}")
    try:
        check_types("", config)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    return config


def bundled_folder() -> Path:
    """The folder of the bundled configurations, in a checkout and in an installed wheel."""
    package = Path(seedrl.__file__).resolve().parent
    installed = package / "configs"
    return installed if installed.is_dir() else package.parent / "configs"


def bundled_names() -> list[str]:
    """The names of the bundled configurations, sorted."""
    return sorted(path.stem for path in bundled_folder().glob("*.py") if path.stem[0] != "_")


def summary(name: str) -> str:
    """What a bundled configuration is, in one line: the first of its docstring, without a stop."""
    source = (bundled_folder() / f"{name}.py").read_text()
    docstring = ast.get_docstring(ast.parse(source)) or ""
    return docstring.partition("\n")[0].rstrip(".")


def _saved(path: Path) -> Config:
    try:
        return from_json(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error


def _resolve(name_or_path: str) -> Path:
    if name_or_path.endswith((".py", ".json")):
        path = Path(name_or_path).resolve()
        if not path.is_file():
            raise ConfigError(f"expected a config file, but there is no {name_or_path}")
        return path
    names = bundled_names()
    if name_or_path in names:
        return bundled_folder() / f"{name_or_path}.py"
    saved = Path(name_or_path) / CONFIG
    if saved.is_file():
        raise ConfigError(
            f"expected a config file, got the folder of a run; pass {saved}, with --workdir "
            f"{name_or_path} to resume it"
        )
    close = difflib.get_close_matches(name_or_path, names, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise ConfigError(
        f"unknown config {name_or_path!r}: {hint}expected the path of a .py or .json file, or "
        f"one of {', '.join(names)}"
    )
