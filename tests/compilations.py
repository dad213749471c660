"""What jax traces and compiles while somebody looks."""

import contextlib
from collections.abc import Iterator

import jax.monitoring


@contextlib.contextmanager
def compilations() -> Iterator[list[str]]:
    """Collects the names of what is traced or compiled meanwhile, in any thread."""
    names: list[str] = []

    def listen(event: str, duration_secs: float, **fields: str | int) -> None:
        if event.startswith("/jax/core/compile"):
            names.append(f"{event} {fields}")

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield names
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
