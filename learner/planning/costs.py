"""What the parts of a system cost: measured on a machine, or given."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seedrl.errors import ConfigError

# Measured where docs/scaling.md says; see the file's own "measured".
BUNDLED = Path(__file__).with_name("costs.json")


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Seconds that parts of a system take; a message is the step of one group.

    Attributes:
      learner_message: of the learner's processor, to read a message and send its answer.
      learner_row: of the learner's processor, for each environment in a message.
      learner_byte: of the learner's processor, for each byte of a message.
      learner_batch: of the learner's processor, for each batch that it acts on.
      learner_cold: the same besides, if nothing has arrived for a while; see `cold_share`.
      learner_at_rest: cores that a learner takes when nothing arrives.
      env_message: of an env server's processor for a message, besides the environments' own.
      env_row: the same, for each environment in a message.
      env_byte: the same, for each byte of a message.
      env_cold: the same, for each message, if it has been asleep for a while.
      env_at_rest: cores that an env server takes when it waits.
      answer: from the end of a group's step to the start of its next one, if it is one environment
        and no other message is under way.
      act: of these, from staging a batch of one message to handing over its actions.
      act_message: the same, for each message more in a batch.
      act_row: of an inference device, for each environment in a batch.
      update: of the learning devices, for each update.
      measured: with what, and when.
    """

    learner_message: float
    learner_row: float
    learner_byte: float
    learner_batch: float
    learner_cold: float
    learner_at_rest: float
    env_message: float
    env_row: float
    env_byte: float
    env_cold: float
    env_at_rest: float
    answer: float
    act: float
    act_message: float
    act_row: float = 0.0
    update: float = 0.0
    measured: str = ""

    def to_json(self) -> dict[str, Any]:
        """As `load` reads it."""
        return dataclasses.asdict(self)


def with_device(
    costs: Costs,
    act_flops: float,
    update_flops: float,
    *,
    flops: float,
    act: float | None,
    update: float | None,
    name: str,
) -> Costs:
    """The costs with those of a device: of an update, and of each environment in a batch.

    Args:
      act_flops, update_flops: operations of each.
      flops: that the device makes a second; 0 if that is not known.
      act, update: seconds of each, instead of these.
      name: of the device, for messages.

    Raises ConfigError if neither is known.
    """
    if not flops and (act is None or update is None):
        raise ConfigError(
            f"--accelerator: how fast {name} computes is not known here; expected --update-ms and "
            "--act-us with it"
        )
    return dataclasses.replace(
        costs,
        act_row=act_flops / flops if act is None else act,
        update=update_flops / flops if update is None else update,
    )


def load(path: Path) -> Costs:
    """The costs of a file that `seedrl plan --write-costs` wrote. Raises ConfigError."""
    try:
        values = json.loads(path.read_text())
    except OSError as error:
        raise ConfigError(
            f"--costs: expected a readable file, got {path}: {error.strerror}"
        ) from error
    except ValueError as error:
        raise ConfigError(f"--costs: expected JSON in {path}, got something else") from error
    return _read(values, path)


def _read(values: Any, path: Path) -> Costs:
    names = [field.name for field in dataclasses.fields(Costs)]
    if not isinstance(values, dict) or set(values) != set(names):
        raise ConfigError(f"--costs: expected an object of {', '.join(names)} in {path}")
    for name, value in values.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if name != "measured" and not (is_number and 0 <= value < float("inf")):
            raise ConfigError(f"--costs: {name}: expected seconds of 0 or more, got {value!r}")
    return Costs(**values)
