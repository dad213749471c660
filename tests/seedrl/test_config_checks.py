"""Every rule of the configuration, broken once."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from seedrl.agents.ppo import PpoConfig
from seedrl.agents.r2d2 import R2D2Config
from seedrl.agents.window import WindowSpec
from seedrl.config import (
    CheckpointConfig,
    Config,
    EnvironmentConfig,
    LearningConfig,
    ReplayConfig,
    ServingConfig,
)
from seedrl.config_checks import check, check_bind, page_steps
from seedrl.errors import ConfigError
from seedrl.replay.queue import QueueConfig

WINDOW = WindowSpec(burn_in=10, unroll=20, bootstrap=5, stride=10)


@dataclass(frozen=True)
class OwnAgent:
    window: WindowSpec = WINDOW
    rate: float = 0.5

    def build(self, spec: object) -> None: ...


# A sequence of 35 steps takes 4 pages of 10; 8 slots need 320 steps.
VALID = Config(
    environment=EnvironmentConfig(id="CartPole-v1"),
    agent=OwnAgent(),
    serving=ServingConfig(training_slots=8, evaluation_slots=4),
    replay=ReplayConfig(capacity_steps=1000, min_steps=320),
)


LOCK_STEP = dataclasses.replace(
    VALID,
    serving=ServingConfig(training_slots=8, evaluation_slots=0),
    learning=LearningConfig(schedule="deterministic", record=True),
    checkpoint=CheckpointConfig(replay=True),
)


def changed(path: str, value: Any) -> Config:
    section, _, name = path.partition(".")
    if name:
        value = dataclasses.replace(getattr(VALID, section), **{name: value})
    return dataclasses.replace(VALID, **{section: value})


def test_a_valid_config_passes() -> None:
    check(VALID)


def test_the_least_config_that_one_would_write_passes() -> None:
    check(Config(environment=EnvironmentConfig(id="CartPole-v1"), agent=R2D2Config()))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("environment.frames_per_step", 0),
        ("serving.ready_deadline_seconds", 601.0),  # its env server has given up by then
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
    ],
)
def test_a_number_out_of_range_is_refused(path: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"^{path}: expected .*, got {value}") as caught:
        check(changed(path, value))
    assert "\n" not in str(caught.value)


def test_the_limits_themselves_are_allowed() -> None:
    for path, value in (
        ("replay.tolerance_updates", 1.0),
        ("replay.min_steps", 320),
        ("replay.min_steps", 1000),
        ("replay.capacity_steps", 320),
        ("replay.priority_exponent", 0.0),
        ("checkpoint.keep", 2),
        ("launch.groups", 1000),
    ):
        check(changed(path, value))


def test_a_stride_must_be_a_whole_number_of_pages() -> None:
    with pytest.raises(ConfigError, match=r"replay\.page_steps: a stride of 10 .* pages of 4"):
        check(changed("replay.page_steps", 4))
    check(changed("replay.page_steps", 5))


def test_page_steps_default_to_the_stride() -> None:
    assert page_steps(VALID) == 10
    assert page_steps(changed("replay.page_steps", 5)) == 5


def test_the_replay_must_hold_a_sequence_of_every_slot() -> None:
    with pytest.raises(ConfigError, match=r"replay\.capacity_steps: expected at least 320 "):
        check(changed("replay.capacity_steps", 319))


def test_learning_must_not_wait_for_a_first_sequence_that_cannot_come() -> None:
    with pytest.raises(ConfigError, match=r"replay\.min_steps: expected at least 320 "):
        check(changed("replay.min_steps", 319))


def test_learning_must_be_able_to_start() -> None:
    with pytest.raises(ConfigError, match=r"replay\.min_steps: expected at most .*\(1000\)"):
        check(changed("replay.min_steps", 1001))


def test_a_run_must_not_end_before_learning_starts() -> None:
    with pytest.raises(ConfigError, match=r"learning\.total_steps: expected at least .*\(320\)"):
        check(changed("learning.total_steps", 319))


def test_a_batch_is_shared_out_evenly_over_devices() -> None:
    with pytest.raises(
        ConfigError, match=r"learning\.batch_sequences: expected a multiple .*\(5\)"
    ):
        check(changed("learning.num_devices", 5))


def test_a_target_needs_evaluation_slots() -> None:
    config = dataclasses.replace(
        changed("evaluation.target_return", 475.0),
        serving=dataclasses.replace(VALID.serving, evaluation_slots=0),
    )
    with pytest.raises(
        ConfigError, match=r"evaluation\.target_return: 475\.0 can only be measured"
    ):
        check(config)


def test_env_servers_must_offer_every_slot() -> None:
    with pytest.raises(ConfigError, match=r"launch\.envs_per_server: 2 .* of 5 .* has 12 slots"):
        check(changed("launch.envs_per_server", 5))
    check(changed("launch.envs_per_server", 6))


@pytest.mark.parametrize("arguments", ["{", "[]", "3", "{'a': 1}", "", {"gravity": 3}])
def test_environment_arguments_are_a_json_object(arguments: object) -> None:
    with pytest.raises(ConfigError, match=r"environment\.arguments: expected a JSON object"):
        check(changed("environment.arguments", arguments))


@pytest.mark.parametrize("names", [("",), ("a", "a"), ("x" * 129,), tuple(map(str, range(65)))])
def test_metrics_have_a_few_short_names(names: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r"environment\.metrics: expected at most 64 different"):
        check(changed("environment.metrics", names))


def test_an_environment_needs_an_id() -> None:
    with pytest.raises(ConfigError, match=r"environment\.id: expected"):
        check(changed("environment.id", ""))


@pytest.mark.parametrize("wrapper", ["module", "module:", ":factory", "a-b:c", "a:b:c", "a.:b"])
def test_wrappers_are_factories(wrapper: str) -> None:
    with pytest.raises(ConfigError, match=r"environment\.wrappers: expected package\.module:fact"):
        check(changed("environment.wrappers", ("good.module:factory", wrapper)))


@pytest.mark.parametrize("agent", [None, OwnAgent, "r2d2"])
def test_an_agent_is_a_dataclass(agent: object) -> None:
    with pytest.raises(ConfigError, match="agent: expected an instance of a frozen dataclass"):
        check(changed("agent", agent))


@pytest.mark.parametrize(
    ("computed", "line"),
    [
        (lambda self: {}["rows"], r"agent\.window \(Own\): KeyError: 'rows' \(.*\.py:\d+\)"),
        (
            lambda self: (0, 1, 0, 1),
            r"agent\.window \(Own\): expected a seedrl\..*WindowSpec, got \(",
        ),
        (
            lambda self: WindowSpec(0, 1.5, 0, 1),  # type: ignore[arg-type]
            r"agent\.window\.unroll: expected a whole number of at least 1, got 1\.5",
        ),
    ],
)
def test_a_window_that_cannot_be_one_is_refused_in_one_line(computed: Any, line: str) -> None:
    @dataclass(frozen=True)
    class Own:
        window = property(computed)

        def build(self, spec: object) -> None: ...

    with pytest.raises(ConfigError, match=f"^{line}"):
        check(changed("agent", Own()))


def test_steps_of_a_window_may_be_computed_by_numpy() -> None:
    window = VALID.agent.window
    check(changed("agent", OwnAgent(window=window._replace(unroll=np.int64(window.unroll)))))  # type: ignore[arg-type]


def test_an_agent_must_be_buildable() -> None:
    with pytest.raises(ConfigError, match=r"agent: expected a config with `window` and `build"):
        check(changed("agent", EnvironmentConfig(id="x")))


@pytest.mark.parametrize("name", WindowSpec._fields)
def test_a_window_has_no_negative_part(name: str) -> None:
    window = VALID.agent.window._replace(**{name: -1})
    with pytest.raises(ConfigError, match=rf"agent\.window\.{name}: expected a whole number of"):
        check(changed("agent", OwnAgent(window=window)))


def _served(bind: str, **fields: Any) -> ServingConfig:
    return ServingConfig(bind=bind, **fields)


@pytest.mark.parametrize("bind", ["", "unix:/run/seedrl/learner", "unix:learner"])
def test_sockets_of_this_machine_need_nothing(bind: str) -> None:
    check_bind(_served(bind))


@pytest.mark.parametrize("bind", ["127.0.0.1:0", "localhost:8686", "[::1]:65535"])
def test_a_port_of_this_machine_needs_a_token(bind: str) -> None:
    check_bind(_served(bind, token_file="token"))
    check_bind(_served(bind, insecure=True))
    with pytest.raises(
        ConfigError, match="every user of this machine reaches .* serving.token_file"
    ):
        check_bind(_served(bind))


@pytest.mark.parametrize("bind", ["0.0.0.0:8686", "[::]:8686", "10.0.0.1:8686", "example.org:80"])
def test_a_port_that_other_machines_reach_needs_a_token_and_certificates(bind: str) -> None:
    both = {"certificate": "learner.pem", "private_key": "learner.key"}
    check_bind(_served(bind, token_file="token", **both))
    check_bind(_served(bind, insecure=True))
    for fields in ({}, {"token_file": "token"}, both):
        with pytest.raises(ConfigError, match=r"serving\.bind: .* reached from other machines"):
            check_bind(_served(bind, **fields))
    with pytest.raises(ConfigError, match="`seedrl certificates` makes, or serving.insecure"):
        check(changed("serving.bind", bind))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"certificate": "a"}, "serving.certificate: expected serving.private_key with it"),
        ({"private_key": "a"}, "serving.certificate: expected serving.private_key with it"),
        ({"authority": "a"}, "serving.authority: expected serving.certificate with it"),
    ],
)
def test_half_of_what_tls_needs_is_refused(fields: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_bind(_served("127.0.0.1:1", insecure=True, **fields))


@pytest.mark.parametrize(
    "bind",
    [
        *("8686", ":8686", "localhost", "localhost:", "localhost:x", "localhost:65536"),
        *("localhost:-1", "::1:80", "unix:", "unix:/run/", "127.0.0.1:²"),
    ],
)
def test_an_address_of_the_wrong_form_is_refused(bind: str) -> None:
    with pytest.raises(ConfigError, match=r"serving\.bind: expected"):
        check_bind(_served(bind, insecure=True))


def test_a_socket_path_longer_than_the_kernel_allows_is_refused() -> None:
    check_bind(_served("unix:/" + "a" * 106))
    with pytest.raises(ConfigError, match="at most 107 bytes, got 108"):
        check_bind(_served("unix:/" + "a" * 107))


def test_lock_step_with_all_that_it_needs_passes() -> None:
    check(LOCK_STEP)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            "serving",
            "serving.evaluation_slots: expected 0 with learning.schedule deterministic, .*, got 4",
        ),
        (
            "checkpoint",
            "checkpoint.replay: expected it to be set with learning.schedule deterministic",
        ),
    ],
)
def test_lock_step_refuses_what_would_depend_on_time_or_be_lost(section: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(dataclasses.replace(LOCK_STEP, **{section: getattr(VALID, section)}))


def test_lock_step_acts_on_one_device() -> None:
    serving = dataclasses.replace(LOCK_STEP.serving, inference_devices=1)
    check(dataclasses.replace(LOCK_STEP, serving=serving))
    serving = dataclasses.replace(serving, inference_devices=2)
    message = (
        "serving.inference_devices: expected at most 1 with learning.schedule deterministic, .* 2"
    )
    with pytest.raises(ConfigError, match=message):
        check(dataclasses.replace(LOCK_STEP, serving=serving))


def test_a_regime_that_this_version_does_not_have_is_refused_by_name() -> None:
    learning: Any = {"schedule": "alternating"}
    config = dataclasses.replace(VALID, learning=LearningConfig(**learning))
    message = "schedule: expected asynchronous or synchronous or deterministic, got 'alternating'"
    with pytest.raises(ConfigError, match=message):
        check(config)


def test_rounds_are_for_a_queue_and_one_sequence_of_every_slot() -> None:
    rounds = LearningConfig(schedule="synchronous", batch_sequences=6)
    with pytest.raises(ConfigError, match="OwnAgent with ReplayConfig cannot take synchronous"):
        check(dataclasses.replace(VALID, learning=rounds))
    on_policy = dataclasses.replace(VALID, agent=PpoConfig(), replay=QueueConfig(), learning=rounds)
    with pytest.raises(ConfigError, match=r"batch_sequences: expected .*slots \(\d+\).* got 6"):
        check(on_policy)
    slots = dataclasses.replace(on_policy.serving, training_slots=6)
    valid = dataclasses.replace(on_policy, serving=slots)
    check(valid)
    late = dataclasses.replace(rounds, publish_every_updates=2)
    with pytest.raises(ConfigError, match="publish_every_updates: expected 1 with .* got 2"):
        check(dataclasses.replace(valid, learning=late))


@dataclass(frozen=True)
class Half:
    def steps_of_page(self, window: WindowSpec) -> int:
        return 1


@pytest.mark.parametrize(
    ("replay", "message"),
    [
        (ReplayConfig, "replay: expected an instance of a frozen dataclass, got <class"),
        (
            Half(),
            "replay: expected a config with steps_of_page, check, build .* a Half without chec",
        ),
    ],
)
def test_a_replay_is_any_config_that_offers_what_is_needed(replay: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(dataclasses.replace(VALID, replay=replay))


def test_only_a_deterministic_run_can_be_recorded() -> None:
    with pytest.raises(ConfigError, match=r"learning\.record: only a deterministic run can be"):
        check(changed("learning.record", True))
