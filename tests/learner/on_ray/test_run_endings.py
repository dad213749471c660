"""How a run on a cluster ends: by itself, by a signal, or because something failed."""

import signal
from collections.abc import Iterator

import pytest

from learner.on_ray.hosted import Started
from seedrl.errors import HostLostError
from tests.learner.on_ray.scripted_cluster import FIRST, LEARNER, RESUMES, SECOND, Script


def test_what_another_start_would_not_change_ends_the_run() -> None:
    for code in (1, 2, 7, 74, 98):
        script = Script()

        def steps(script: Script = script, code: int = code) -> Iterator[object]:
            yield script.reports(LEARNER, code)

        assert script.play(steps) == code
        assert len(script.made("start_learner")) == 1


def test_a_learner_that_dies_too_often_ends_the_run() -> None:
    script = Script()

    def steps() -> Iterator[object]:
        for starts in range(1, 8):
            while len(script.made("follow", LEARNER)) < starts:
                yield None
            yield script.reports(LEARNER, 137)

    assert script.play(steps) == 137
    assert len(script.made("start_learner")) == 7
    assert script.said[-1] == (
        "seedrl: error: the learner ended with 137, after 6 restarts within an hour; this resumes "
        f"from its newest checkpoint: {RESUMES}"
    )


def test_the_first_signal_lets_the_learner_save_and_the_second_kills_it() -> None:
    for is_patient in (True, False):
        script = Script()

        def steps(script: Script = script, is_patient: bool = is_patient) -> Iterator[object]:
            script.run.signal(signal.SIGINT)
            script.run.signal(signal.SIGTERM)  # the same request
            yield None
            yield script.reports(FIRST, 143)  # it is not started again
            script.seconds += 5
            assert [call.words for call in script.made("stop", LEARNER)] == [("SIGINT",)]
            if is_patient:
                yield script.reports(LEARNER, 0, text="saved\n")
            script.run.signal(signal.SIGINT)

        assert script.play(steps) == (0 if is_patient else 143)
        assert script.written == ("saved\n" if is_patient else "")
        assert len(script.made("start_env_server", FIRST)) == 1
        assert len(script.made("stop")) == 1
        assert len(script.said) == 1
        assert script.removed == [LEARNER, FIRST, SECOND]


def test_a_signal_that_arrives_while_the_learner_is_started_is_passed_on_once_it_runs() -> None:
    script = Script()
    script.held.add("start_learner")

    def steps() -> Iterator[object]:
        script.run.signal(signal.SIGTERM)
        yield None
        assert script.made("stop") == []
        yield script.answers.update({script.made("start_learner")[0]: Started("x:1", True)})
        yield None
        yield script.reports(LEARNER, 143, is_unbegun=True)

    assert script.play(steps) == 0
    assert [call.words for call in script.made("stop", LEARNER)] == [("SIGTERM",)]
    assert "before it had begun" in script.said[-1]
    assert script.made("start_env_server") == []


def test_a_signal_before_a_learner_has_resumed_says_what_resumes_it() -> None:
    script = Script()

    def steps() -> Iterator[object]:
        script.held.add("start_learner")
        yield script.reports(LEARNER, 75)
        while len(script.made("start_learner")) < 2:
            yield None
        yield script.run.signal(signal.SIGTERM)
        again = script.made("start_learner")[1]
        yield script.answers.update({again: Started("10.0.0.1:0", True)})
        while not script.made("stop"):
            yield None
        yield script.reports(LEARNER, 143, is_unbegun=True)

    assert script.play(steps) == 143
    assert script.said[-1].startswith("SIGTERM, while there was no learner; this resumes")
    assert script.said[-1].endswith(RESUMES)


def test_a_signal_before_there_is_a_node_ends_the_run_unbegun() -> None:
    script = Script()
    script.held.add("place")

    def steps() -> Iterator[object]:
        script.seconds += 20
        yield None
        yield script.run.signal(signal.SIGINT)

    assert script.play(steps) == 0
    assert script.said[0] == "learner is not placed yet: it needs 2 x CPU and 1 x GPU of one node"
    assert "before it had begun" in script.said[1]
    assert script.made("end") == [] and script.removed == [LEARNER]


def test_a_learner_that_another_signal_ends_while_it_saves_had_begun() -> None:
    script = Script()

    def steps() -> Iterator[object]:
        yield script.run.signal(signal.SIGINT)
        yield script.reports(LEARNER, 143)

    assert script.play(steps) == 143
    assert script.said == ["learner on 10.0.0.1, run folder /runs/mine"]


def test_a_learner_that_is_lost_while_it_saves_was_killed() -> None:
    script = Script()

    def steps() -> Iterator[object]:
        yield script.run.signal(signal.SIGINT)
        yield script.loses(LEARNER)

    assert script.play(steps) == 143
    assert RESUMES in script.said[-1] and "is lost on 10.0.0.1" in script.said[-1]


def test_an_env_server_that_refuses_ends_the_run_with_its_code() -> None:
    script = Script()

    def steps() -> Iterator[object]:
        yield script.reports(FIRST, 2, "python -m envs_server: error: no such environment")
        yield None
        yield script.reports(LEARNER, 0)

    assert script.play(steps) == 2
    line = "env server 0 cannot run: no such environment"
    assert script.said[-1] == f"seedrl: error: {line}"
    assert script.made("stop")[0].words == (f"the env servers failed: {line}",)


def test_a_learner_that_does_not_end_in_time_is_killed() -> None:
    script = Script(env_servers=1)

    def steps() -> Iterator[object]:
        yield script.reports(FIRST, 2, "1 2 env server 3: ends: refused")
        yield None
        script.seconds += 999
        yield None
        assert script.said[-1] == "seedrl: error: env server 0 cannot run: refused"
        script.seconds += 2

    assert script.play(steps) == 2
    assert script.said[-1] == "the learner did not end in time and is killed"


def test_the_first_signal_leaves_a_learner_alone_that_saves_because_of_its_env_servers() -> None:
    script = Script()

    def steps() -> Iterator[object]:
        yield script.reports(FIRST, 2, "1 2 env server 3: ends: refused")
        yield None
        yield script.run.signal(signal.SIGINT)
        yield None
        yield script.reports(LEARNER, 0)

    assert script.play(steps) == 2
    assert len(script.made("stop")) == 1


def test_of_a_cluster_that_is_lost_nobody_is_called() -> None:
    script = Script()

    def lose() -> None:
        raise HostLostError("the connection is lost")

    def steps() -> Iterator[object]:
        yield None
        yield lose()

    with pytest.raises(HostLostError):
        script.play(steps)
    assert script.made("end") == [] and script.removed == []


def test_a_cluster_that_is_lost_while_its_run_is_ended_changes_no_exit_code() -> None:
    script = Script()
    script.held.add("end")

    def steps() -> Iterator[object]:
        yield script.reports(LEARNER, 1)
        raise HostLostError("the connection is lost")

    assert script.play(steps) == 1
    assert script.said[-1].startswith("warning: the cluster was lost while the run ended")


def test_another_version_on_a_node_is_refused() -> None:
    script = Script()
    script.version = "2"
    assert script.play(lambda: iter(())) == 2
    assert script.said == [
        "seedrl: error: expected seedrl 1 on all nodes, got 2 on 10.0.0.1",
    ]


def test_another_version_on_a_later_node_lets_the_learner_save() -> None:
    script = Script()

    def steps() -> Iterator[object]:
        script.version = "2"
        yield script.loses(FIRST)
        while not script.made("stop"):
            yield None
        yield script.reports(LEARNER, 0)

    assert script.play(steps) == 2
    line = "expected seedrl 1 on all nodes, got 2 on 10.0.0.2"
    assert script.said[-1] == f"seedrl: error: {line}"
    assert [call.words for call in script.made("stop", LEARNER)] == [
        (f"the env servers failed: {line}",)
    ]
