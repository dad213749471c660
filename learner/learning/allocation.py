"""Whether an update fits a device, known before the first one runs."""

from typing import Any

from seedrl.errors import ConfigError
from seedrl.replay.experience import Scale


def update_bytes(compiled: Any) -> int | None:
    """What a compiled program needs on each device at its worst; None if that is not known.

    Its arguments with the replay, what it computes in between, and those results that do not take
    an argument's place. Programs that act need little beside it.
    """
    needed = compiled.memory_analysis()
    if needed is None:
        return None
    results = needed.output_size_in_bytes - needed.alias_size_in_bytes
    return int(needed.argument_size_in_bytes + results + needed.temp_size_in_bytes)


def require_update_memory(compiled: Any, scale: Scale) -> None:
    """Raises ConfigError if the compiled update needs more than a device has.

    Without that the first update would fail, an hour after the start where replay fills slowly.
    """
    wanted = update_bytes(compiled)
    if wanted is None or wanted <= scale.device_bytes:
        return
    raise ConfigError(
        f"learning.batch_sequences: an update of {scale.batch_per_device} sequences needs "
        f"{wanted / 2**30:.1f} GiB on each device with the replay, but {scale.device_name} has "
        f"{scale.device_bytes / 2**30:.1f} GiB; fewer sequences, a smaller replay or more devices "
        "would fit"
    )
