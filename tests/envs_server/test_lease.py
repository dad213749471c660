"""The handshake and the lock step of an env server, against a scripted learner."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from seedrl_plugin.counting import reward_of

from seedrl.exit_codes import ExitCode
from seedrl.types import StepType
from seedrl.wire.framing import ActionsPayload
from seedrl.wire.learner_payload import StepReader, pack_actions
from seedrl.wire.payload import read_header
from seedrl.wire.seedrl_pb2 import Assign, Environment, Finish, FromLearner, Group
from seedrl.wire.spec import spec_of

_FINISH = FromLearner(finish=Finish(reason="enough"))


def test_two_groups_step_in_lock_step_and_every_reward_fits_its_action(learner: Any) -> None:
    learner.serve(learner.play(learner.assign([1, 2], [3, 4, 5]), 60))
    assert learner.run(5, 2).wait() is ExitCode.OK
    for group, seeds in ((0, [1, 2]), (1, [3, 4, 5])):
        steps = [step for step in learner.seen if step.group == group]
        assert [step.sequence for step in steps] == list(range(len(steps)))
        assert len(steps) > 20
        # Episodes of 3 and 2 steps, the first terminated, the second truncated.
        expected = [(0, 0, 0), (1, 0, 1), (1, 0, 2), (2, 0, 3), (0, 1, 0), (1, 1, 1), (2, 1, 2)]
        for index, step in enumerate(steps):
            kind, odd, count = expected[index % 7]
            timestep = step.timestep
            assert timestep.step_type.tolist() == [kind] * len(seeds)
            assert timestep.discount.tolist() == [float((kind, odd) != (2, 0))] * len(seeds)
            episode = 2 * (index // 7) + odd
            assert timestep.observation.tolist() == [[s, 0, episode, count] for s in seeds]
            if kind == StepType.FIRST:
                assert not timestep.reward.any()
            else:
                fields = (np.array(seeds), 0, episode, count, steps[index - 1].actions)
                np.testing.assert_array_equal(timestep.reward, reward_of(*fields))


def test_one_group_steps_while_the_other_waits(learner: Any) -> None:
    """Group 0 gets 20 answers while group 1 gets none."""
    sequences: list[int] = []

    def script(messages: Iterator[Any], context: Any) -> Iterator[Any]:
        next(messages)
        yield learner.assign([1], [2])
        next(messages)
        headers = sorted(read_header(next(messages)) for _ in range(2))
        assert [header.group for header in headers] == [0, 1]
        for sequence in range(20):
            yield ActionsPayload(pack_actions(0, sequence, np.zeros(1, np.int32)))
            header = read_header(next(messages))
            assert header.group == 0
            sequences.append(header.sequence)
        yield _FINISH

    learner.serve(script)
    assert learner.run(2, 2).wait() is ExitCode.OK
    assert sequences == list(range(1, 21))


@pytest.mark.parametrize("learner", ["stream"], indirect=True)
@pytest.mark.parametrize(
    ("group", "sequence", "actions", "named"),
    [
        (0, 0, [5], "group 0"),
        (0, 0, [-1], "group 0"),
        (0, 1, [0], "step 0 of group 0"),
        (1, 0, [0], "group < 1"),
        (0, 0, [0, 0], "1 environments"),
    ],
)
def test_actions_that_do_not_fit_never_reach_an_environment(
    learner: Any,
    caplog: pytest.LogCaptureFixture,
    group: int,
    sequence: int,
    actions: list[int],
    named: str,
) -> None:
    def script(messages: Iterator[Any], context: Any) -> Iterator[Any]:
        next(messages)
        yield learner.assign([1])
        next(messages)
        next(messages)
        yield ActionsPayload(pack_actions(group, sequence, np.array(actions, np.int32)))
        assert next(messages, None) is None

    learner.serve(script)
    assert learner.run(1, 1).wait() is ExitCode.USAGE
    assert named in caplog.text


@pytest.mark.parametrize("learner", ["stream"], indirect=True)
@pytest.mark.parametrize(
    ("groups", "named"),
    [
        ([], "slots"),
        ([Group(slots=[1, 2, 3], seeds=[1, 2, 3])], "slots"),
        ([Group(slots=[1], seeds=[1]), Group()], "slots"),
        ([Group(slots=[1], seeds=[2**31])], "seed"),
        ([Group(slots=[1, 2], seeds=[1])], "seed"),
        ([Group(slots=[1, 1], seeds=[1, 2])], "slot"),
    ],
)
def test_an_assignment_that_contradicts_itself_is_refused(
    learner: Any, groups: list[Group], named: str
) -> None:
    environment = Environment(id="CartPole-v1")
    refusals = _refusals(learner, Assign(environment=environment, groups=groups))
    assert learner.run(2, 2).wait() is ExitCode.USAGE
    assert named in refusals[0]


def _refusals(learner: Any, assign: Assign) -> list[str]:
    """Fills with the reason for which an env server refuses what it is assigned."""
    refusals: list[str] = []

    def script(messages: Iterator[Any], context: Any) -> Iterator[Any]:
        next(messages)
        yield FromLearner(assign=assign)
        refusals.append(next(messages).refusal.reason)

    learner.serve(script)
    return refusals


def test_last_rows_carry_the_numbers_that_are_asked_for(learner: Any) -> None:
    assign = learner.assign([1, 2], [3])
    assign.assign.environment.metrics.extend(["step", "missing"])
    found: list[list[list[float]]] = [[], []]

    def script(messages: Iterator[Any], context: Any) -> Iterator[Any]:
        next(messages)
        yield assign
        ready = next(messages).ready
        assert list(ready.metrics) == ["step", "missing"]
        spec = spec_of(ready.spec)
        layouts = [StepReader(spec, size, num_metrics=2) for size in (2, 1)]
        for _ in range(16):
            data = next(messages)
            group, num_envs, sequence = read_header(data)
            layouts[group].unpack(data)
            found[group].extend(layouts[group].metrics(data).tolist())
            yield ActionsPayload(pack_actions(group, sequence, np.zeros(num_envs, np.int32)))
        yield _FINISH

    learner.serve(script)
    assert learner.run(3, 2).wait() is ExitCode.OK
    # Episodes of 3 and 2 steps.
    np.testing.assert_array_equal(found[0], [[3, np.nan]] * 2 + [[2, np.nan]] * 2)
    np.testing.assert_array_equal(found[1], [[3, np.nan], [2, np.nan]])
