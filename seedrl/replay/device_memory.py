"""Whether the capacity that is asked for fits the memory of a device."""

from seedrl.errors import ConfigError
from seedrl.replay.experience import Scale
from seedrl.replay.index import replay_bytes
from seedrl.types import Page


def require_memory(
    page: Page, page_steps: int, capacity_pages: int, scale: Scale, *, starts_in_page: int = 1
) -> None:
    """Raises ConfigError if a shard of `capacity_pages` such pages is larger than a device.

    Args:
      page: one page, as arrays or shapes.
      page_steps: rows of it.
      capacity_pages: of each device.
      scale: the devices.
      starts_in_page: sequences that start in a page.
    """
    wanted = replay_bytes(page, capacity_pages, starts_in_page)
    if wanted <= scale.device_bytes:
        return
    per_step = replay_bytes(page, 1, starts_in_page) / page_steps
    fitting = int(scale.device_bytes / per_step) * scale.num_devices
    raise ConfigError(
        f"replay.capacity_steps: the replay needs {wanted / 2**30:.1f} GiB on each device, but "
        f"{scale.device_name} has {scale.device_bytes / 2**30:.1f} GiB; at most {fitting} "
        "steps would fit, with nothing else beside them"
    )
