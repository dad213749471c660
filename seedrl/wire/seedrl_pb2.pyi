# ruff: noqa
# fmt: off
# mypy: ignore-errors
# seedrl/wire/seedrl.proto sha256 21a1d8a0dcb09773a2467cd39eabb105faca9a70ced46b4b556b18d77851c8ff
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FromEnvServer(_message.Message):
    __slots__ = ("hello", "ready", "step", "refusal", "failure", "alive")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    ready: Ready
    step: bytes
    refusal: Refusal
    failure: Failure
    alive: Alive
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., ready: _Optional[_Union[Ready, _Mapping]] = ..., step: _Optional[bytes] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., alive: _Optional[_Union[Alive, _Mapping]] = ...) -> None: ...

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
    __slots__ = ("major", "minor", "num_envs", "num_groups", "host", "pid", "sent", "plays_recording", "link", "alive_seconds", "num_quarantined", "quarantine")
    MAJOR_FIELD_NUMBER: _ClassVar[int]
    MINOR_FIELD_NUMBER: _ClassVar[int]
    NUM_ENVS_FIELD_NUMBER: _ClassVar[int]
    NUM_GROUPS_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    PLAYS_RECORDING_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    ALIVE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    NUM_QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    QUARANTINE_FIELD_NUMBER: _ClassVar[int]
    major: int
    minor: int
    num_envs: int
    num_groups: int
    host: str
    pid: int
    sent: _containers.RepeatedCompositeFieldContainer[Sent]
    plays_recording: bool
    link: str
    alive_seconds: float
    num_quarantined: int
    quarantine: str
    def __init__(self, major: _Optional[int] = ..., minor: _Optional[int] = ..., num_envs: _Optional[int] = ..., num_groups: _Optional[int] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., sent: _Optional[_Iterable[_Union[Sent, _Mapping]]] = ..., plays_recording: bool = ..., link: _Optional[str] = ..., alive_seconds: _Optional[float] = ..., num_quarantined: _Optional[int] = ..., quarantine: _Optional[str] = ...) -> None: ...

class Sent(_message.Message):
    __slots__ = ("lease", "group", "num_envs", "steps", "answered")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    NUM_ENVS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    lease: int
    group: int
    num_envs: int
    steps: int
    answered: int
    def __init__(self, lease: _Optional[int] = ..., group: _Optional[int] = ..., num_envs: _Optional[int] = ..., steps: _Optional[int] = ..., answered: _Optional[int] = ...) -> None: ...

class Assign(_message.Message):
    __slots__ = ("environments", "groups", "lease", "linked", "max_message_bytes", "step_deadline_seconds", "unlinked_reason", "minor")
    ENVIRONMENTS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    LINKED_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    STEP_DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    UNLINKED_REASON_FIELD_NUMBER: _ClassVar[int]
    MINOR_FIELD_NUMBER: _ClassVar[int]
    environments: _containers.RepeatedCompositeFieldContainer[Environment]
    groups: _containers.RepeatedCompositeFieldContainer[Group]
    lease: int
    linked: bool
    max_message_bytes: int
    step_deadline_seconds: float
    unlinked_reason: str
    minor: int
    def __init__(self, environments: _Optional[_Iterable[_Union[Environment, _Mapping]]] = ..., groups: _Optional[_Iterable[_Union[Group, _Mapping]]] = ..., lease: _Optional[int] = ..., linked: bool = ..., max_message_bytes: _Optional[int] = ..., step_deadline_seconds: _Optional[float] = ..., unlinked_reason: _Optional[str] = ..., minor: _Optional[int] = ...) -> None: ...

class Environment(_message.Message):
    __slots__ = ("id", "arguments", "wrappers", "vectorization", "metrics", "max_abs_reward", "failures_per_minute", "failures_per_hour")
    ID_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    WRAPPERS_FIELD_NUMBER: _ClassVar[int]
    VECTORIZATION_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    MAX_ABS_REWARD_FIELD_NUMBER: _ClassVar[int]
    FAILURES_PER_MINUTE_FIELD_NUMBER: _ClassVar[int]
    FAILURES_PER_HOUR_FIELD_NUMBER: _ClassVar[int]
    id: str
    arguments: str
    wrappers: _containers.RepeatedScalarFieldContainer[str]
    vectorization: str
    metrics: _containers.RepeatedScalarFieldContainer[str]
    max_abs_reward: float
    failures_per_minute: int
    failures_per_hour: int
    def __init__(self, id: _Optional[str] = ..., arguments: _Optional[str] = ..., wrappers: _Optional[_Iterable[str]] = ..., vectorization: _Optional[str] = ..., metrics: _Optional[_Iterable[str]] = ..., max_abs_reward: _Optional[float] = ..., failures_per_minute: _Optional[int] = ..., failures_per_hour: _Optional[int] = ...) -> None: ...

class Group(_message.Message):
    __slots__ = ("slots", "seeds", "evaluation", "environment", "first_row")
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    SEEDS_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    FIRST_ROW_FIELD_NUMBER: _ClassVar[int]
    slots: _containers.RepeatedScalarFieldContainer[int]
    seeds: _containers.RepeatedScalarFieldContainer[int]
    evaluation: bool
    environment: int
    first_row: int
    def __init__(self, slots: _Optional[_Iterable[int]] = ..., seeds: _Optional[_Iterable[int]] = ..., evaluation: bool = ..., environment: _Optional[int] = ..., first_row: _Optional[int] = ...) -> None: ...

class Ready(_message.Message):
    __slots__ = ("spec", "metrics")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    spec: str
    metrics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, spec: _Optional[str] = ..., metrics: _Optional[_Iterable[str]] = ...) -> None: ...

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

class Alive(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Finish(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...
