"""Every rule of the configuration, broken once: the message begins with the field's name."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from seedrl.agents.ppo import PpoConfig
from seedrl.agents.r2d2 import R2D2Config
from seedrl.agents.window import WindowSpec
from seedrl.config import Config, EnvironmentConfig, ReplayConfig, check, page_steps
from seedrl.config import ServingConfig as Serving
from seedrl.errors import ConfigError
from seedrl.fields import with_fields
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
        changed({"launch.envs_per_server": 6, "launch.groups": 1000, "replay.page_steps": 5}),
        changed({"replay.min_steps": 1000, "replay.tolerance_updates": 1.0}),
        changed({"replay.capacity_steps": 320, "replay.priority_exponent": 0.0}),
    ],
)
def test_a_valid_config_passes(config: Config) -> None:
    check(config)


@pytest.mark.parametrize(
    ("paths", "values"),
    [
        (
            "environment.frames_per_step environment.max_abs_reward serving.training_slots "
            "serving.ready_deadline_seconds replay.capacity_steps replay.min_steps replay.ratio "
            "learning.batch_sequences learning.publish_every_updates learning.total_steps "
            "evaluation.episodes evaluation.confirm_episodes checkpoint.interval_seconds "
            "logging.interval_seconds launch.groups",
            [0],
        ),
        (
            "serving.evaluation_slots serving.batch_deadline_seconds replay.page_steps "
            "replay.importance_exponent learning.num_devices learning.lag_updates "
            "evaluation.interval_seconds "
            "launch.env_servers launch.envs_per_server seed",
            [-1],
        ),
        ("replay.ratio evaluation.target_return agent.rate", [float("nan"), float("inf")]),
        ("serving.ready_deadline_seconds", [601.0]),  # its env server has given up by then
        ("serving.max_message_bytes", [10, 2**30]),
        ("replay.priority_exponent", [1.1]),
        ("replay.tolerance_updates", [0.9]),
        ("checkpoint.keep", [1]),
        ("launch.groups", [1001]),
        ("seed", [2**31]),
        ("replay.page_steps", [4]),  # no divisor of the stride
        ("replay.capacity_steps", [319]),  # less than a sequence of every slot
        ("replay.min_steps", [319, 1001]),  # before the first sequence; more than the capacity
        ("learning.total_steps", [319]),  # before learning starts
        ("environment.arguments", ["{", "[]", "3", "{'a': 1}", "", {"a": 3}]),
        ("environment.metrics", [("",), ("a", "a"), ("x" * 129,), MANY]),
        ("environment.id", [""]),
        ("agent", [None, OwnAgent, "r2d2", EnvironmentConfig(id="x")]),
        ("replay", [ReplayConfig, Half()]),
        ("learning.schedule", ["synchronous"]),  # with a replay that is no queue
        ("launch.envs_per_server", [5]),  # fewer environments than slots
        ("serving.bind", ["0.0.0.0:8686"]),
        ("logging.health_bind", ["8686", "unix:/x"]),
    ],
)
def test_a_field_that_breaks_a_rule_is_named(paths: str, values: list[Any]) -> None:
    for path in paths.split():
        for value in values:
            assert refused(changed({path: value})).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("values", "config"),
    [
        ({"learning.batch_sequences": 32, "learning.num_devices": 5}, VALID),
        ({"evaluation.target_return": 475.0, "serving.evaluation_slots": 0}, VALID),
        ({"evaluation.patience_rounds": 2, "serving.evaluation_slots": 0}, VALID),
        ({"serving.evaluation_slots": 4}, DETERMINISTIC),
        ({"serving.inference_devices": 2}, DETERMINISTIC),
        ({"learning.batch_sequences": 6}, ROUNDS),
        ({"learning.publish_every_updates": 2}, ROUNDS),
        ({"replay.ahead_updates": 0}, ROUNDS),
    ],
)
def test_rules_between_two_fields_name_the_one_to_change(
    values: dict[str, Any], config: Config
) -> None:
    assert refused(changed(values, config)).startswith(f"{next(iter(values))}: ")


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
