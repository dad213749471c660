"""Packages that `pip install seedrl` does not bring, and the extra that does."""

import importlib.util

from seedrl.errors import UserError

# Which extra brings what is imported under a name; pyproject.toml says what the extras are.
EXTRA_OF = {
    **dict.fromkeys(
        (
            *("chex", "flatbuffers", "flax", "jax", "matplotlib", "optax", "orbax", "rich"),
            *("prometheus_client", "tensorboardX"),
        ),
        "learner",
    ),
    "ale_py": "atari",
    "cryptography": "certificates",
    "ray": "ray",
    "wandb": "wandb",
    **dict.fromkeys(("imageio_ffmpeg", "pygame"), "video"),
    **dict.fromkeys(("starlette", "uvicorn"), "watch"),
}
# What always comes with seedrl, unless that was installed without what it depends on.
_ALWAYS = ("grpc", "gymnasium", "numpy")


class MissingPackageError(UserError, ImportError):
    """A package of an extra that is not installed."""


def describe(error: ImportError) -> str | None:
    """One line that says what to install; None if that does not bring what is not there."""
    name = (error.name or "").partition(".")[0]
    if name not in (*EXTRA_OF, *_ALWAYS) or importlib.util.find_spec(name) is not None:
        return None
    return _line(name)


def require(extra: str) -> None:
    """Raises MissingPackageError if what the extra brings is not installed; imports nothing."""
    for name, source in EXTRA_OF.items():
        if source == extra and importlib.util.find_spec(name) is None:
            raise MissingPackageError(_line(name), name=name)


def _line(name: str) -> str:
    extra = EXTRA_OF.get(name)
    install = f"pip install 'seedrl[{extra}]'" if extra else "pip install seedrl"
    return f"expected the package {name}, which is not installed; {install}"
