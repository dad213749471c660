"""Python files as modules: the files of configurations, and what they import from beside them.

What a command line names is code that its user wants to run. What a file of a run's folder names is
not: that folder may be somebody else's. `allow` admits it, a folder at a time.
"""

import fnmatch
import importlib.util
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from seedrl.errors import ConfigError
from seedrl.programs import extras

# Where the code of Python, of what is installed, and of this package lies.
_LIBRARIES = (
    *(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    Path(__file__).parent,
)
_OWN_FACTORIES = "envs_server.envs.*"
FILE_PREFIX = "config-file:"  # start of the module names of configuration files
_folders: list[str] = []
_allowed_folders: set[Path] = set()
_allowed_names: set[str] = set()


def import_folders() -> tuple[str, ...]:
    """The folders of the files loaded so far, in the order in which they are on the path."""
    return tuple(_folders)


def import_from(folder: Path) -> None:
    """Puts `folder` on the path of imports: before all but the folders that it was given before.

    So a configuration's own folder comes before those of the configurations that it loads, and
    before the current folder, whatever PYTHONPATH says. `path_for_children` has the same order.
    """
    text = str(folder)
    if text not in _folders:
        _folders.append(text)
    sys.path[:] = [*_folders, *(entry for entry in sys.path if entry not in _folders)]


def allow(*allowed: str | Path) -> None:
    """Admits, in this process, code that the files of a run name.

    Args:
      allowed: folders, of which the Python files directly in them are meant, or one of such files;
        or patterns (`*`, `?`) for the names of environments' factories, `package.module:factory`.
    """
    for each in allowed:
        path = Path(each)
        if path.exists():
            _allowed_folders.add(path.resolve() if path.is_dir() else path.resolve().parent)
        else:
            _allowed_names.add(str(each))


def is_allowed(folder: Path) -> bool:
    """Whether the Python files of a folder may be run: it was allowed, or is the command line's."""
    return folder.resolve() in _allowed_folders or str(folder) in _folders


def is_allowed_factory(name: str) -> bool:
    """Whether a factory, `package.module:factory`, may build environments of a saved run."""
    is_named = any(fnmatch.fnmatchcase(name, pattern) for pattern in _allowed_names)
    return is_named or lies_in(name, _allowed_folders)


def lies_in(name: str, folders: Iterable[str | Path]) -> bool:
    """Whether a factory comes with seedrl, or its module lies directly in one of the folders."""
    if fnmatch.fnmatchcase(name, _OWN_FACTORIES):
        return True
    top = name.partition(":")[0].partition(".")[0]
    return any(top in _module_names(Path(folder)) for folder in folders)


def path_for_children() -> str:
    """PYTHONPATH of a process that finds what this one finds, and then what the current folder has.

    It has to be started with `python -P`, which puts no folder before it.
    """
    folders = [*_folders, os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.pathsep.join(dict.fromkeys(folders))


def passed_over(names: Iterable[str]) -> list[str]:
    """Modules of the current folder that a namesake beside a configuration comes before, sorted.

    Args:
      names: of modules that other processes will import, beside those imported in this one.
    """
    here = Path.cwd()
    theirs = set().union(*(_module_names(Path(folder)) for folder in _folders))
    if str(here) in _folders or not theirs:
        return []
    wanted = {name.partition(".")[0] for name in (*sys.modules, *names)}
    return sorted(wanted & theirs & _module_names(here))


def load_module(path: Path) -> ModuleType:
    """The module of a Python file, which runs once. Raises ConfigError if it raises anything."""
    # The path makes the name unique: a/config.py and b/config.py can be loaded side by side. A file
    # runs once, so that the classes in it stay the same classes.
    name = f"{FILE_PREFIX}{path}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, f"{path} is not a Python file"
    module = importlib.util.module_from_spec(spec)
    # Before the file runs: dataclasses look up the module in which they stand.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ConfigError(describe(path, error)) from error
    return module


def describe(path: Path, error: BaseException) -> str:
    """One line for what a file has raised: the error, and the innermost place of the user's own.

    That may be in a module which the file imports.
    """
    if isinstance(error, SyntaxError) and _is_own(error.filename, path):
        return f"{error.filename}:{error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{frame.filename}:{frame.lineno}" for frame in frames if _is_own(frame[0], path)]
    place = places[-1] if places else str(path)
    if isinstance(error, ImportError) and (missing := extras.describe(error)):
        return f"{place}: {missing}"
    kind = "" if isinstance(error, ConfigError) else f"{type(error).__name__}: "
    return f"{place}: {kind}{' '.join(str(error).split())}"


def _module_names(folder: Path) -> set[str]:
    """What can be imported from a folder, by its files; none if it is gone."""
    try:
        return {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}
    except OSError:
        return set()


def _is_own(file: str | None, path: Path) -> bool:
    if file is None or file.startswith("<"):
        return False
    return file == str(path) or not any(Path(file).is_relative_to(root) for root in _LIBRARIES)
