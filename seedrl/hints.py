"""Hints for errors: the word that was meant, the place in a user's own file, the extra to install.

Apart from `seedrl.errors` because an env server, of which many start at once, needs none of them
until something fails.
"""

import contextlib
import difflib
import importlib.util
import sys
import traceback
from collections.abc import Collection, Iterable, Iterator, Sequence
from types import FrameType

from seedrl.errors import ConfigError, UserError


def did_you_mean(word: str, known: Collection[str], likely: Sequence[str] = ()) -> str:
    """`; did you mean X?` at the end of an error about a misspelt word, "" if none is close.

    X are up to three of `likely`, else the known words that start with it, else the closest.
    """
    close = [*likely, *(name for name in known if name.startswith(word))][:3]
    close = close or difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {' or '.join(dict.fromkeys(close))}?" if close else ""


# Packages whose frames may lie between a mistake in a user's code and the place where it shows.
_LIBRARIES = frozenset(
    (
        *("chex", "distrax", "einops", "equinox", "flax", "haiku", "jax", "jaxlib", "jaxtyping"),
        *("envs_server", "gymnasium", "learner", "numpy", "optax", "rlax", "seedrl"),
    )
)


def own_place(error: BaseException) -> str:
    """The innermost line of a user's own code that led to an error; empty if there is none."""
    return innermost_own_place(reversed(list(traceback.walk_tb(error.__traceback__))))


def innermost_own_place(frames: Iterable[tuple[FrameType, int]]) -> str:
    """The first line of a user's own code among `frames`, which start at the innermost, or ""."""
    for frame, line in frames:
        module, file = str(frame.f_globals.get("__name__")), frame.f_code.co_filename
        # Generated code has no file: its name is `<string>`, say, or empty.
        is_file = file[:1] not in ("", "<")
        if is_file and module.partition(".")[0] not in _LIBRARIES | sys.stdlib_module_names:
            return f"{file}:{line}"
    return ""


@contextlib.contextmanager
def naming_own_code(field: str) -> Iterator[None]:
    """Turns an error in a user's own code into one line with the field and the place in their file.

    Any other error stays as it is: a defect of ours is no mistake of theirs.

    Raises ConfigError.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if not (place := own_place(error)):
            raise
        text = " ".join(str(error).split())
        raise ConfigError(f"{field}: {type(error).__name__}: {text:.300} ({place})") from error


# The extra that brings the package imported under a name; pyproject.toml lists the extras.
EXTRA_OF = {
    **dict.fromkeys(
        (
            *("chex", "flatbuffers", "flax", "jax", "matplotlib", "optax", "orbax", "rich"),
            *("prometheus_client", "scipy", "tensorboardX"),
        ),
        "learner",
    ),
    "Box2D": "box2d",
    "ale_py": "atari",
    "cryptography": "certificates",
    **{name: name for name in ("minatar", "minigrid", "mujoco", "popgym", "ray", "wandb")},
    **{name: name for name in ("safetensors", "tokenizers")},
    **dict.fromkeys(("imageio_ffmpeg", "pygame"), "video"),
    **dict.fromkeys(("starlette", "uvicorn"), "watch"),
    "reasoning_gym": "reasoning",
    "skyrl_gym": "skyrl",
}


def missing_extra(error: BaseException) -> str | None:
    """One line that names the extra to install; None if no extra brings the missing package.

    Follows causes: libraries turn an ImportError into an error of their own.
    """
    cause: BaseException | None = error
    seen: list[int] = []  # `raise error from error` is its own cause
    while cause is not None and id(cause) not in seen:
        seen.append(id(cause))
        # Of an import only: an environment's own error may have a name of any type.
        name = str(cause.name).partition(".")[0] if isinstance(cause, ImportError) else ""
        if name in EXTRA_OF:
            # It is installed if something else in it is missing: then its own error says more.
            return None if importlib.util.find_spec(name) else _install(name)
        cause = cause.__cause__ or cause.__context__
    return None


def require_extra(extra: str) -> None:
    """Raises ConfigError if a package of the extra is not installed; imports nothing."""
    for name, source in EXTRA_OF.items():
        if source == extra and importlib.util.find_spec(name) is None:
            raise ConfigError(_install(name))


def _install(name: str) -> str:
    extra = EXTRA_OF[name]
    return (
        f"expected the package {name}, which is not installed; pip install 'seedrl[{extra}]', in a "
        f"checkout pip install --editable '.[{extra}]'"
    )
