"""Every rule of the configuration, broken once: the message begins with the field's name."""

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

from seedrl.agents.ppo import PpoConfig
from seedrl.agents.r2d2 import R2D2Config
from seedrl.agents.window import WindowSpec
from seedrl.config import Config, EnvironmentConfig, ReplayConfig, check, page_steps
from seedrl.config import ServingConfig as Serving
from seedrl.errors import ConfigError
from seedrl.fields import check_types, fields_of, with_fields
from seedrl.replay.queue import QueueConfig

MANY = tuple(map(str, range(65)))
WINDOW = WindowSpec(burn_in=10, unroll=20, bootstrap=5, stride=10)


@dataclass(frozen=True)
class OwnAgent:
    window: WindowSpec = WINDOW
    rate: float = 0.5

    def build(self, spec: object) -> None: ...


@dataclass(frozen=True)
class Half:
    def steps_of_page(self, window: WindowSpec) -> int:
        return 1


# A sequence of 35 steps takes 4 pages of 10; 8 slots need 320 steps.
VALID = Config(
    environment=EnvironmentConfig(id="CartPole-v1"),
    agent=OwnAgent(),
    serving=Serving(training_slots=8, evaluation_slots=4),
    replay=ReplayConfig(capacity_steps=1000, min_steps=320),
)


def changed(values: Mapping[str, Any], config: Config = VALID) -> Config:
    return with_fields(config, values)


DETERMINISTIC = changed(
    {
        "serving.evaluation_slots": 0,
        "learning.schedule": "deterministic",
        "learning.record": True,
        "checkpoint.replay": True,
    }
)
ROUNDS = changed(
    {
        "agent": PpoConfig(),
        "replay": QueueConfig(),
        "learning.schedule": "synchronous",
        "learning.batch_sequences": 8,
    }
)


def refused(config: Config) -> str:
    with pytest.raises(ConfigError) as caught:
        check(config)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "config",
    [
        VALID,
        DETERMINISTIC,
        ROUNDS,
        Config(environment=EnvironmentConfig(id="CartPole-v1"), agent=R2D2Config()),
        changed({"serving.inference_devices": 1}, DETERMINISTIC),
        changed({"agent": OwnAgent(window=WINDOW._replace(unroll=np.int64(20)))}),  # type: ignore[arg-type]
        changed({"launch.envs_per_server": 6}),
        *(
            changed({path: value})
            for path, value in (
                ("replay.page_steps", 5),
                ("replay.tolerance_updates", 1.0),
                ("replay.min_steps", 1000),
                ("replay.capacity_steps", 320),
                ("replay.priority_exponent", 0.0),
                ("checkpoint.keep", 2),
                ("launch.groups", 1000),
            )
        ),
    ],
)
def test_a_valid_config_passes(config: Config) -> None:
    check(config)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("environment.frames_per_step", 0),
        ("environment.max_abs_reward", 0.0),
        ("serving.ready_deadline_seconds", 601.0),  # its env server has given up by then
        ("serving.ready_deadline_seconds", 0.0),
        ("serving.training_slots", 0),
        ("serving.evaluation_slots", -1),
        ("serving.batch_deadline_seconds", -0.1),
        ("serving.max_message_bytes", 10),
        ("replay.capacity_steps", 0),
        ("replay.min_steps", 0),
        ("replay.page_steps", -1),
        ("replay.priority_exponent", 1.1),
        ("replay.importance_exponent", -0.1),
        ("learning.batch_sequences", 0),
        ("replay.ratio", 0.0),
        ("replay.tolerance_updates", 0.9),
        ("learning.publish_every_updates", 0),
        ("learning.total_steps", 0),
        ("learning.num_devices", -1),
        ("evaluation.interval_seconds", -1.0),
        ("evaluation.episodes", 0),
        ("evaluation.confirm_episodes", 0),
        ("checkpoint.interval_seconds", 0.0),
        ("checkpoint.keep", 1),
        ("logging.interval_seconds", 0.0),
        ("launch.env_servers", -1),
        ("launch.envs_per_server", -1),
        ("launch.groups", 0),
        ("launch.groups", 1001),
        ("seed", -1),
        ("replay.ratio", float("nan")),
        ("evaluation.target_return", float("inf")),
        ("agent.rate", float("nan")),
        ("replay.page_steps", 4),  # no divisor of the stride
        ("replay.capacity_steps", 319),  # less than a sequence of every slot
        ("replay.min_steps", 319),  # before the first sequence
        ("replay.min_steps", 1001),  # more than the capacity
        ("learning.total_steps", 319),  # before learning starts
        *(("environment.arguments", text) for text in ("{", "[]", "3", "{'a': 1}", "", {"a": 3})),
        *(("environment.metrics", n) for n in (("",), ("a", "a"), ("x" * 129,), MANY)),
        ("environment.id", ""),
        ("agent", None),
        ("agent", OwnAgent),
        ("agent", "r2d2"),
        ("agent", EnvironmentConfig(id="x")),  # neither a window nor `build`
        ("replay", ReplayConfig),
        ("replay", Half()),
        ("learning.schedule", "synchronous"),  # with a replay that is no queue
        ("learning.record", True),  # of a run that is not deterministic
        ("launch.envs_per_server", 5),  # fewer environments than slots
        ("serving.bind", "0.0.0.0:8686"),
        ("logging.health_bind", "8686"),
        ("logging.health_bind", "unix:/x"),
    ],
)
def test_a_field_that_breaks_a_rule_is_named(path: str, value: Any) -> None:
    assert refused(changed({path: value})).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (changed({"learning.num_devices": 5}), "learning.batch_sequences"),
        (
            changed({"evaluation.target_return": 475.0, "serving.evaluation_slots": 0}),
            "evaluation.target_return",
        ),
        (changed({"serving.evaluation_slots": 4}, DETERMINISTIC), "serving.evaluation_slots"),
        (changed({"checkpoint.replay": False}, DETERMINISTIC), "checkpoint.replay"),
        (changed({"serving.inference_devices": 2}, DETERMINISTIC), "serving.inference_devices"),
        (changed({"learning.batch_sequences": 6}, ROUNDS), "learning.batch_sequences"),
        (changed({"learning.publish_every_updates": 2}, ROUNDS), "learning.publish_every_updates"),
    ],
)
def test_rules_between_two_fields_name_the_one_to_change(config: Config, field: str) -> None:
    assert refused(config).startswith(f"{field}: ")


def test_page_steps_default_to_the_stride() -> None:
    assert page_steps(VALID) == 10
    assert page_steps(changed({"replay.page_steps": 5})) == 5


@pytest.mark.parametrize(
    ("computed", "named"),
    [
        (lambda: {}["rows"], "KeyError: 'rows' ("),
        (lambda: (0, 1, 0, 1), "agent.window"),
        *((lambda n=n: WINDOW._replace(**{n: -1}), f"agent.window.{n}: ") for n in WINDOW._fields),
        (lambda: WindowSpec(0, 1.5, 0, 1), "agent.window.unroll: "),  # type: ignore[arg-type]
    ],
)
def test_a_window_that_cannot_be_one_is_one_line(computed: Any, named: str) -> None:
    @dataclass(frozen=True)
    class Own:
        window = property(lambda self: computed())

        def build(self, spec: object) -> None: ...

    line = refused(changed({"agent": Own()}))
    assert line.startswith("agent.window") and named in line


_TLS = {"certificate": "learner.pem", "private_key": "learner.key"}
_TOKEN = {"token_file": "token"}
_INSECURE = {"insecure": True}


@pytest.mark.parametrize(
    ("binds", "accepted", "refused_with"),
    [
        # Sockets of this machine need nothing.
        (("", "unix:/run/seedrl/learner", "unix:learner", "unix:/" + "a" * 106), [{}], []),
        # Every user of this machine reaches a port of it.
        (("127.0.0.1:0", "localhost:8686", "[::1]:65535"), [_TOKEN, _INSECURE], [{}]),
        (
            ("0.0.0.0:8686", "[::]:8686", "10.0.0.1:8686", "example.org:80"),
            [{**_TLS, **_TOKEN}, _INSECURE],
            [{}, _TOKEN, _TLS],
        ),
        (
            (
                *("8686", ":8686", "localhost", "localhost:", "localhost:x", "localhost:65536"),
                *("localhost:-1", "::1:80", "unix:", "unix:/run/", "127.0.0.1:²"),
                "unix:/" + "a" * 107,  # longer than the kernel allows
            ),
            [],
            [_INSECURE],
        ),
    ],
)
def test_an_address_needs_what_keeps_others_out(
    binds: tuple[str, ...], accepted: list[dict[str, Any]], refused_with: list[dict[str, Any]]
) -> None:
    def served(bind: str, fields: dict[str, Any]) -> Config:
        serving = Serving(training_slots=8, evaluation_slots=4, bind=bind, **fields)
        return dataclasses.replace(VALID, serving=serving)

    for bind in binds:
        for fields in accepted:
            check(served(bind, fields))
        for fields in refused_with:
            assert refused(served(bind, fields)).startswith("serving.bind: ")


@pytest.mark.parametrize("field", ["certificate", "private_key", "authority"])
def test_half_of_what_tls_needs_is_refused(field: str) -> None:
    assert "serving.certificate" in refused(changed({f"serving.{field}": "a"}))


# Fields.


def test_values_at_paths_change_together_and_nothing_else_does() -> None:
    other = with_fields(VALID, {"seed": 3, "agent.rate": 0.1, "agent.window": WINDOW})
    before, after = fields_of(VALID), fields_of(other)
    assert {path for path in before if before[path] != after[path]} == {"seed", "agent.rate"}
    assert (after["seed"], after["agent.rate"]) == (3, 0.1)

    @dataclass(frozen=True)
    class Pair:
        low: int = 1
        high: int = 2

        def __post_init__(self) -> None:
            if self.low >= self.high:
                raise ValueError("low")

    assert with_fields(Pair(), {"low": 5, "high": 6}) == Pair(5, 6)
    with pytest.raises(ValueError, match="low"):
        with_fields(Pair(), {"low": 5})


@dataclass(frozen=True)
class Inner:
    names: tuple[str, ...] = ()
    ratio: float = 1.0


@dataclass(frozen=True)
class Outer:
    number: int = 3
    limit: float | None = None
    is_on: bool = False
    mode: Literal["a", "b"] = "a"
    folder: Path = Path()
    inner: Inner = Inner()
    agent: Any = None
    pair: "tuple[int, str]" = (1, "x")


@dataclass(frozen=True)
class Decorated(Inner):
    sizes: int = 3


class WithoutDataclass(Inner):
    penalty: float = 0.1


class WithoutType(Inner):
    ratio = 2.0


@dataclass(frozen=True)
class DecoratedWithoutType(Inner):
    ratio = 2.0


@dataclass(frozen=True)
class Further(WithoutDataclass):
    more: int = 3


class PlainFirst:
    ratio = 2.0


@dataclass(frozen=True)
class MixedIn(PlainFirst, Inner):
    """Has the ratio of Inner."""


class Constants(Inner):
    """Adds what is no field."""

    LIMIT: ClassVar[int] = 3
    other = 4


class Plain:
    """No dataclass, with names that a dataclass after it declares as fields."""

    ratio = 1

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True)
class Declared(Plain):
    ratio: float = 2.0  # type: ignore[assignment]
    names: tuple[str, ...] = ("a",)  # type: ignore[assignment]


@dataclass(frozen=True)
class Unknown:
    spec: "NoSuchName" = 3  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"limit": 3, "inner": Inner(ratio=2)},  # an int is a number too
        {"inner": Inner(names=["a"])},  # type: ignore[arg-type]
        {"agent": "whatever"},
        *({"agent": kind()} for kind in (Decorated, Constants, Declared, Unknown)),
    ],
)
def test_values_that_fit_their_types_pass(values: dict[str, Any]) -> None:
    check_types("", dataclasses.replace(Outer(), **values))


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"number": "3"}, "number"),
        ({"number": True}, "number"),
        ({"is_on": 1}, "is_on"),
        ({"limit": "x" * 1000}, "limit"),
        ({"mode": "c"}, "mode"),
        ({"folder": "runs"}, "folder"),
        ({"inner": None}, "inner"),
        ({"inner": Inner(names=("a", 3))}, "inner.names"),  # type: ignore[arg-type]
        ({"agent": Inner(ratio="r")}, "agent.ratio"),  # type: ignore[arg-type]
        # Their values would be lost without a word.
        ({"agent": WithoutDataclass()}, "agent: class WithoutDataclass sets penalty"),
        ({"agent": Further()}, "agent: class WithoutDataclass sets penalty"),
        ({"agent": WithoutType()}, "agent: class WithoutType sets ratio"),
        ({"agent": MixedIn()}, "agent: class PlainFirst sets ratio"),
        ({"agent": DecoratedWithoutType()}, "agent: class DecoratedWithoutType sets ratio"),
    ],
)
def test_a_value_of_another_type_is_named(values: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_types("", dataclasses.replace(Outer(), **values))
    assert str(caught.value).startswith(field) and len(str(caught.value)) < 300
