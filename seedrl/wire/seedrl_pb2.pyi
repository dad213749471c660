# ruff: noqa
# fmt: off
# mypy: ignore-errors
# seedrl/wire/seedrl.proto sha256 ed54f723f2675e7ca33665f1eaf8a67d11de92031b57641a92f727aec3d847f7
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FromEnvServer(_message.Message):
    __slots__ = ("hello", "ready", "step", "refusal", "failure")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    ready: Ready
    step: bytes
    refusal: Refusal
    failure: Failure
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., ready: _Optional[_Union[Ready, _Mapping]] = ..., step: _Optional[bytes] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ...) -> None: ...

class FromLearner(_message.Message):
    __slots__ = ("assign", "actions", "finish")
    ASSIGN_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    assign: Assign
    actions: bytes
    finish: Finish
    def __init__(self, assign: _Optional[_Union[Assign, _Mapping]] = ..., actions: _Optional[bytes] = ..., finish: _Optional[_Union[Finish, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("major", "minor", "num_envs", "num_groups", "host", "pid", "sent", "link", "num_quarantined", "quarantine")
    MAJOR_FIELD_NUMBER: _ClassVar[int]
    MINOR_FIELD_NUMBER: _ClassVar[int]
    NUM_ENVS_FIELD_NUMBER: _ClassVar[int]
    NUM_GROUPS_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    NUM_QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    QUARANTINE_FIELD_NUMBER: _ClassVar[int]
    major: int
    minor: int
    num_envs: int
    num_groups: int
    host: str
    pid: int
    sent: _containers.RepeatedCompositeFieldContainer[Sent]
    link: str
    num_quarantined: int
    quarantine: str
    def __init__(self, major: _Optional[int] = ..., minor: _Optional[int] = ..., num_envs: _Optional[int] = ..., num_groups: _Optional[int] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., sent: _Optional[_Iterable[_Union[Sent, _Mapping]]] = ..., link: _Optional[str] = ..., num_quarantined: _Optional[int] = ..., quarantine: _Optional[str] = ...) -> None: ...

class Sent(_message.Message):
    __slots__ = ("lease",)
    LEASE_FIELD_NUMBER: _ClassVar[int]
    lease: int
    def __init__(self, lease: _Optional[int] = ...) -> None: ...

class Assign(_message.Message):
    __slots__ = ("environment", "groups", "lease", "linked", "max_message_bytes", "step_deadline_seconds", "unlinked_reason", "minor")
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    LINKED_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    STEP_DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    UNLINKED_REASON_FIELD_NUMBER: _ClassVar[int]
    MINOR_FIELD_NUMBER: _ClassVar[int]
    environment: Environment
    groups: _containers.RepeatedCompositeFieldContainer[Group]
    lease: int
    linked: bool
    max_message_bytes: int
    step_deadline_seconds: float
    unlinked_reason: str
    minor: int
    def __init__(self, environment: _Optional[_Union[Environment, _Mapping]] = ..., groups: _Optional[_Iterable[_Union[Group, _Mapping]]] = ..., lease: _Optional[int] = ..., linked: bool = ..., max_message_bytes: _Optional[int] = ..., step_deadline_seconds: _Optional[float] = ..., unlinked_reason: _Optional[str] = ..., minor: _Optional[int] = ...) -> None: ...

class Environment(_message.Message):
    __slots__ = ("id", "arguments", "wrappers", "vectorization", "metrics", "max_abs_reward", "failures_per_hour")
    ID_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    WRAPPERS_FIELD_NUMBER: _ClassVar[int]
    VECTORIZATION_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    MAX_ABS_REWARD_FIELD_NUMBER: _ClassVar[int]
    FAILURES_PER_HOUR_FIELD_NUMBER: _ClassVar[int]
    id: str
    arguments: str
    wrappers: _containers.RepeatedScalarFieldContainer[str]
    vectorization: str
    metrics: _containers.RepeatedScalarFieldContainer[str]
    max_abs_reward: float
    failures_per_hour: int
    def __init__(self, id: _Optional[str] = ..., arguments: _Optional[str] = ..., wrappers: _Optional[_Iterable[str]] = ..., vectorization: _Optional[str] = ..., metrics: _Optional[_Iterable[str]] = ..., max_abs_reward: _Optional[float] = ..., failures_per_hour: _Optional[int] = ...) -> None: ...

class Group(_message.Message):
    __slots__ = ("slots", "seeds", "evaluation")
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    SEEDS_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    slots: _containers.RepeatedScalarFieldContainer[int]
    seeds: _containers.RepeatedScalarFieldContainer[int]
    evaluation: bool
    def __init__(self, slots: _Optional[_Iterable[int]] = ..., seeds: _Optional[_Iterable[int]] = ..., evaluation: bool = ...) -> None: ...

class Ready(_message.Message):
    __slots__ = ("spec", "metrics")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    spec: EnvSpec
    metrics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, spec: _Optional[_Union[EnvSpec, _Mapping]] = ..., metrics: _Optional[_Iterable[str]] = ...) -> None: ...

class EnvSpec(_message.Message):
    __slots__ = ("action", "observation")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    action: Action
    observation: Observation
    def __init__(self, action: _Optional[_Union[Action, _Mapping]] = ..., observation: _Optional[_Union[Observation, _Mapping]] = ...) -> None: ...

class Action(_message.Message):
    __slots__ = ("discrete", "box", "multi_discrete", "tokens")
    DISCRETE_FIELD_NUMBER: _ClassVar[int]
    BOX_FIELD_NUMBER: _ClassVar[int]
    MULTI_DISCRETE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    discrete: int
    box: Box
    multi_discrete: MultiDiscrete
    tokens: Tokens
    def __init__(self, discrete: _Optional[int] = ..., box: _Optional[_Union[Box, _Mapping]] = ..., multi_discrete: _Optional[_Union[MultiDiscrete, _Mapping]] = ..., tokens: _Optional[_Union[Tokens, _Mapping]] = ...) -> None: ...

class Tokens(_message.Message):
    __slots__ = ("vocabulary", "longest_turn", "longest_completion", "end", "alphabet")
    VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    LONGEST_TURN_FIELD_NUMBER: _ClassVar[int]
    LONGEST_COMPLETION_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    ALPHABET_FIELD_NUMBER: _ClassVar[int]
    vocabulary: int
    longest_turn: int
    longest_completion: int
    end: int
    alphabet: str
    def __init__(self, vocabulary: _Optional[int] = ..., longest_turn: _Optional[int] = ..., longest_completion: _Optional[int] = ..., end: _Optional[int] = ..., alphabet: _Optional[str] = ...) -> None: ...

class MultiDiscrete(_message.Message):
    __slots__ = ("shape", "counts")
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    shape: _containers.RepeatedScalarFieldContainer[int]
    counts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, shape: _Optional[_Iterable[int]] = ..., counts: _Optional[_Iterable[int]] = ...) -> None: ...

class Box(_message.Message):
    __slots__ = ("shape", "low", "high")
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    shape: _containers.RepeatedScalarFieldContainer[int]
    low: _containers.RepeatedScalarFieldContainer[float]
    high: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, shape: _Optional[_Iterable[int]] = ..., low: _Optional[_Iterable[float]] = ..., high: _Optional[_Iterable[float]] = ...) -> None: ...

class Observation(_message.Message):
    __slots__ = ("array", "dict", "tuple")
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    DICT_FIELD_NUMBER: _ClassVar[int]
    TUPLE_FIELD_NUMBER: _ClassVar[int]
    array: Array
    dict: Dict
    tuple: Tuple
    def __init__(self, array: _Optional[_Union[Array, _Mapping]] = ..., dict: _Optional[_Union[Dict, _Mapping]] = ..., tuple: _Optional[_Union[Tuple, _Mapping]] = ...) -> None: ...

class Array(_message.Message):
    __slots__ = ("shape", "dtype", "low", "high", "categorical")
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    CATEGORICAL_FIELD_NUMBER: _ClassVar[int]
    shape: _containers.RepeatedScalarFieldContainer[int]
    dtype: str
    low: _containers.RepeatedScalarFieldContainer[float]
    high: _containers.RepeatedScalarFieldContainer[float]
    categorical: bool
    def __init__(self, shape: _Optional[_Iterable[int]] = ..., dtype: _Optional[str] = ..., low: _Optional[_Iterable[float]] = ..., high: _Optional[_Iterable[float]] = ..., categorical: bool = ...) -> None: ...

class Dict(_message.Message):
    __slots__ = ("items",)
    class ItemsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Observation
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Observation, _Mapping]] = ...) -> None: ...
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.MessageMap[str, Observation]
    def __init__(self, items: _Optional[_Mapping[str, Observation]] = ...) -> None: ...

class Tuple(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Observation]
    def __init__(self, items: _Optional[_Iterable[_Union[Observation, _Mapping]]] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Finish(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...
