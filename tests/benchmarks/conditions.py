"""What a benchmark was measured with, for the note below its table."""

from typing import Any

from seedrl.config import Config


def conditions(config: Config, **fields: Any) -> dict[str, Any]:
    """Window, stride and network of a configuration, its replay ratio, and `fields` on top.

    A field that is None or "" plays no part, and is left out.
    """
    window = config.agent.window
    described = {
        "replay ratio": getattr(config.replay, "ratio", None),
        "window": f"{window.burn_in} + {window.unroll} + {window.bootstrap}",
        "stride": window.stride,
        "network": network_name(config.agent),
        **{name.replace("_", " "): value for name, value in fields.items()},
    }
    return {name: value for name, value in described.items() if value not in (None, "")}


def network_name(agent: Any) -> str:
    """The network of an agent's configuration in a few words."""
    network: Any = getattr(agent, "network", agent)
    if not hasattr(network, "torso"):
        return type(network).__name__
    sizes = "x".join(map(str, network.torso_sizes))
    return f"{network.torso} {sizes}, core {network.core} {network.core_size}, {network.dtype}"
