"""An EnvSpec as JSON text, in checkpoints and recordings: protobuf's JSON of the wire's message."""

from google.protobuf import json_format

from seedrl.errors import CheckpointError
from seedrl.specs import EnvSpec
from seedrl.wire import seedrl_pb2
from seedrl.wire.spec import spec_message, spec_of


def encode_spec(spec: EnvSpec) -> str:
    """A canonical text: equal specs give equal texts."""
    return json_format.MessageToJson(spec_message(spec), indent=None, sort_keys=True)


def decode_spec(text: str) -> EnvSpec:
    """Inverse of `encode_spec`. Raises ValueError for anything else, one line."""
    try:
        message = json_format.Parse(text, seedrl_pb2.EnvSpec())
    # A file may hold anything; protobuf raises an AttributeError for what is no text.
    except (json_format.ParseError, ValueError, AttributeError, RecursionError) as error:
        line = " ".join(str(error).split())
        raise ValueError(f"env spec: expected JSON of an EnvSpec: {line:.80}") from error
    return spec_of(message)


def saved_spec(text: str) -> EnvSpec:
    """Like `decode_spec`, of a checkpoint. Raises CheckpointError: it may be an older seedrl's."""
    try:
        return decode_spec(text)
    except ValueError as error:
        raise CheckpointError(
            f"expected a checkpoint with a readable env_spec; {error}; it may be of another wire "
            "version (this one is 3.0): start a new workdir, or use the seedrl of that time"
        ) from error
