"""Packages that `pip install seedrl` does not bring, and the extra that does."""

import importlib.util

from seedrl.errors import UserError

# The extra that brings the package imported under a name; pyproject.toml lists the extras.
EXTRA_OF = {
    **dict.fromkeys(
        (
            *("chex", "flatbuffers", "flax", "jax", "matplotlib", "optax", "orbax", "rich"),
            *("grpc_health", "prometheus_client", "scipy", "tensorboardX"),
        ),
        "learner",
    ),
    "Box2D": "box2d",
    "ale_py": "atari",
    "cryptography": "certificates",
    **{name: name for name in ("minatar", "minigrid", "mujoco", "popgym", "ray", "wandb")},
    **dict.fromkeys(("imageio_ffmpeg", "pygame"), "video"),
    **dict.fromkeys(("starlette", "uvicorn"), "watch"),
}


class MissingPackageError(UserError, ImportError):
    """A package of an extra that is not installed."""


def describe(error: BaseException) -> str | None:
    """One line that names the extra to install; None if no extra brings the missing package.

    Follows causes: libraries turn an ImportError into an error of their own.
    """
    cause: BaseException | None = error
    while cause is not None:
        name = (getattr(cause, "name", None) or "").partition(".")[0]
        if isinstance(cause, ImportError) and name in EXTRA_OF:
            return None if importlib.util.find_spec(name) else _line(name)
        cause = cause.__cause__ or cause.__context__
    return None


def require(extra: str) -> None:
    """Raises MissingPackageError if a package of the extra is not installed; imports nothing."""
    for name, source in EXTRA_OF.items():
        if source == extra and importlib.util.find_spec(name) is None:
            raise MissingPackageError(_line(name), name=name)


def _line(name: str) -> str:
    extra = EXTRA_OF[name]
    return (
        f"expected the package {name}, which is not installed; pip install 'seedrl[{extra}]', in a "
        f"checkout pip install --editable '.[{extra}]'"
    )
