"""An EnvSpec as the message of proto/seedrl/wire/seedrl.proto, and back."""

import dataclasses
from collections.abc import Mapping

from seedrl.specs import (
    ActionSpec,
    ArraySpec,
    BoxSpec,
    DiscreteSpec,
    EnvSpec,
    MultiDiscreteSpec,
    TokensSpec,
    shown,
)
from seedrl.types import Tree
from seedrl.wire import seedrl_pb2


def spec_message(spec: EnvSpec) -> seedrl_pb2.EnvSpec:
    """The message of a spec; equal specs give equal messages."""
    return seedrl_pb2.EnvSpec(
        action=_action_message(spec.action), observation=_message(spec.observation)
    )


def spec_of(message: seedrl_pb2.EnvSpec) -> EnvSpec:
    """Inverse of `spec_message`. Raises ValueError, one line that names the field.

    Every bound is checked: a message may come from anybody. Its own length bounds the work here.
    """
    return EnvSpec(_tree("observation", message.observation), _action(message.action))


def _message(tree: Tree) -> seedrl_pb2.Observation:
    if isinstance(tree, ArraySpec):
        array = seedrl_pb2.Array(
            shape=tree.shape,
            dtype=tree.dtype,
            low=tree.low,
            high=tree.high,
            categorical=tree.is_categorical,
        )
        return seedrl_pb2.Observation(array=array)
    if isinstance(tree, Mapping):
        items = {key: _message(item) for key, item in tree.items()}
        return seedrl_pb2.Observation(dict=seedrl_pb2.Dict(items=items))
    return seedrl_pb2.Observation(tuple=seedrl_pb2.Tuple(items=map(_message, tree)))


def _action_message(action: ActionSpec) -> seedrl_pb2.Action:
    if isinstance(action, DiscreteSpec):
        return seedrl_pb2.Action(discrete=action.num_actions)
    if isinstance(action, MultiDiscreteSpec):
        several = seedrl_pb2.MultiDiscrete(shape=action.shape, counts=action.counts)
        return seedrl_pb2.Action(multi_discrete=several)
    if isinstance(action, TokensSpec):
        return seedrl_pb2.Action(tokens=seedrl_pb2.Tokens(**dataclasses.asdict(action)))
    box = seedrl_pb2.Box(shape=action.shape, low=action.low, high=action.high)
    return seedrl_pb2.Action(box=box)


def _tree(path: str, message: seedrl_pb2.Observation) -> Tree:
    kind = message.WhichOneof("kind")
    if kind is None:
        raise ValueError(f"{shown(path)}: expected array, dict or tuple, got none of them")
    if kind == "array":
        try:
            array = message.array
            bounds = (tuple(array.low), tuple(array.high))
            return ArraySpec(tuple(array.shape), array.dtype, *bounds, array.categorical)
        except ValueError as error:
            raise ValueError(f"{shown(path)}: {error}") from error
    if kind == "tuple":
        items = enumerate(message.tuple.items)
        return tuple(_tree(f"{path}.{index}", item) for index, item in items)
    fields = message.dict.items.items()
    return {key: _tree(f"{path}.{key}", item) for key, item in fields}


def _action(message: seedrl_pb2.Action) -> ActionSpec:
    kind = message.WhichOneof("kind")
    if kind is None:
        raise ValueError(
            "action: expected discrete, box, multi_discrete or tokens, got none of them"
        )
    try:
        if kind == "discrete":
            return DiscreteSpec(message.discrete)
        if kind == "multi_discrete":
            several = message.multi_discrete
            return MultiDiscreteSpec(tuple(several.shape), tuple(several.counts))
        if kind == "tokens":
            tokens = message.tokens
            lengths = (tokens.longest_turn, tokens.longest_completion)
            return TokensSpec(tokens.vocabulary, *lengths, tokens.end, tokens.alphabet)
        return BoxSpec(tuple(message.box.shape), tuple(message.box.low), tuple(message.box.high))
    except ValueError as error:
        raise ValueError(f"action: {error}") from error
