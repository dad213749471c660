"""Python files as modules: the files of configurations, and what they import from beside them."""

import importlib.util
import sys
import sysconfig
import traceback
from pathlib import Path
from types import ModuleType

from seedrl.errors import ConfigError
from seedrl.programs import extras

# Where the code of Python, of what is installed, and of this package lies.
_LIBRARIES = (
    *(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    Path(__file__).parent,
)
FILE_PREFIX = "config-file:"  # start of the module names of configuration files
_folders: list[str] = []


def import_folders() -> tuple[str, ...]:
    """The folders of the files loaded so far: other processes need them on their path, too."""
    return tuple(_folders)


def import_from(folder: Path) -> None:
    """Puts `folder` first on the path of imports, here and, by `import_folders`, elsewhere."""
    text = str(folder)
    if text not in _folders:
        _folders.append(text)
    if text not in sys.path:
        sys.path.insert(0, text)


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


def _is_own(file: str | None, path: Path) -> bool:
    if file is None or file.startswith("<"):
        return False
    return file == str(path) or not any(Path(file).is_relative_to(root) for root in _LIBRARIES)
