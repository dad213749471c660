"""What the fields that all network configurations share may be."""

from typing import Any

from seedrl.config_types import check_types

_CHOICES = {
    "torso": ("auto", "mlp", "nature", "shallow", "impala", "minatar"),
    "core": ("lstm", "gru", "none"),
    "dtype": ("float32", "bfloat16"),
}


def check_fields(config: Any) -> None:
    """Raises ValueError for the first field of a network configuration that cannot work."""
    for name, allowed in _CHOICES.items():
        if getattr(config, name) not in allowed:
            expected = ", ".join(allowed)
            raise ValueError(f"network.{name}: expected {expected}; got {getattr(config, name)!r}")
    check_types("network.", config)  # before anything is compared
    for name in ("core_size", "frame_stack"):
        value = getattr(config, name)
        if value is not None and value < 1:
            raise ValueError(f"network.{name}: expected at least 1, got {value}")
    for name in ("torso_sizes", "head_sizes"):
        if any(size < 1 for size in getattr(config, name)):
            raise ValueError(f"network.{name}: expected sizes >= 1, got {getattr(config, name)}")
