"""What becomes of a run on a cluster when something in it dies: the cluster is a script."""

import signal
from collections.abc import Iterator

from learner.on_ray.cluster import LostError, UnansweredError
from learner.on_ray.hosted import Report, Started
from tests.learner.on_ray.scripted_cluster import FIRST, LEARNER, NODES, RESUMES, SECOND, Script


def test_a_run_is_spread_over_the_nodes_and_ends_with_its_learners_code() -> None:
    script = Script()

    def steps() -> Iterator[object]:
        yield script.reports(LEARNER, None, text="0:00:01  learns\n")
        yield script.reports(LEARNER, 1, text="ended\n")

    assert script.play(steps) == 1
    assert script.where == {LEARNER: "a", FIRST: "b", SECOND: "c"}
    assert script.written == "0:00:01  learns\nended\n"
    assert script.said == ["learner on 10.0.0.1, run folder /runs/mine"]
    (learner,) = script.made("start_learner")
    assert learner.words[2] == {"config.json": "{}", "learner.key": "10.0.0.1"}
    assert [call.words[2:] for call in script.made("start_env_server")] == [
        ({"env_server.key": "e"}, "env server 0", "10.0.0.1:0", None),
        ({"env_server.key": "e"}, "env server 1", "10.0.0.1:0", None),
    ]
    assert [(call.actor, *call.words) for call in script.made("end")] == [
        (LEARNER, 0.0),
        (FIRST, 5.0),
        (SECOND, 5.0),
    ]
    assert script.removed == [LEARNER, FIRST, SECOND]


def test_an_env_server_that_dies_is_started_again_where_it_was_within_its_budget() -> None:
    script = Script()

    def steps() -> Iterator[object]:
        for _ in range(3):
            yield script.reports(FIRST, 137, "the last")
        yield None
        assert len(script.made("start_env_server", FIRST)) == 3
        script.seconds += 61
        yield None
        yield None
        assert len(script.made("start_env_server", FIRST)) == 4
        yield script.reports(LEARNER, 0)

    assert script.play(steps) == 0
    again = "env server 0 ended with 137; its log, 10.0.0.2:/log, ends: the last"
    assert script.said[1:] == [
        *[f"{again}; it is started again"] * 2,
        f"{again}; the run goes on without it, and it is tried again",
    ]
    assert len(script.where) == 3


def test_an_env_server_hears_how_the_one_before_died_but_not_after_a_rest() -> None:
    script = Script()

    def steps() -> Iterator[object]:
        for code in (139, 1, 137):
            yield script.reports(FIRST, code, "the last")
        script.seconds += 61
        yield None
        yield None
        # Asked to begin anew: it has not died.
        yield script.loses(LEARNER)
        while len(script.made("start_env_server", FIRST)) < 5:
            yield None
        yield script.reports(3, 0)

    assert script.play(steps) == 0
    starts = script.made("start_env_server", FIRST)
    assert [call.words[5] for call in starts] == [None, 139, 1, None, None]


def test_an_env_server_that_waits_for_a_learner_hears_how_the_one_before_died() -> None:
    script = Script()

    def steps() -> Iterator[object]:
        script.held.add("start_learner")
        yield script.reports(LEARNER, 75)
        yield script.reports(FIRST, 139, "the last")
        while len(script.made("start_learner")) < 2:
            yield None
        again = script.made("start_learner")[1]
        yield script.answers.update({again: Started("10.0.0.1:0", True)})
        while len(script.made("start_env_server", FIRST)) < 2:
            yield None
        yield script.reports(LEARNER, 0)

    assert script.play(steps) == 0
    assert script.made("start_env_server", FIRST)[1].words[5] == 139


def test_an_env_server_that_rests_is_begun_with_a_new_learner_and_not_once_more() -> None:
    script = Script()

    def steps() -> Iterator[object]:
        for _ in range(3):
            yield script.reports(FIRST, 137, "the last")
        yield script.loses(LEARNER)
        while len(script.made("start_env_server", FIRST)) < 4:
            yield None
        script.seconds += 61
        yield None
        yield None
        yield script.reports(3, 0)

    assert script.play(steps) == 0
    assert len(script.made("start_env_server", FIRST)) == 4


def test_one_that_a_new_learner_has_begun_rests_no_more_when_all_others_do() -> None:
    script = Script()

    def steps() -> Iterator[object]:
        for _ in range(3):
            yield script.reports(FIRST, 137, "the last")
        yield script.loses(LEARNER)
        while len(script.made("start_env_server", FIRST)) < 4:
            yield None
        for starts in range(2, 5):
            while len(script.made("follow", SECOND)) < starts:
                yield None
            yield script.reports(SECOND, 137, "the last")
        yield script.reports(3, 0)

    assert script.play(steps) == 0
    assert "env server 1" in script.said[-1] and "the run goes on without it" in script.said[-1]


def test_env_servers_of_a_lost_node_are_placed_elsewhere() -> None:
    script = Script()

    def steps() -> Iterator[object]:
        del script.nodes_alive[1]
        yield script.loses(FIRST)
        yield None
        yield script.reports(LEARNER, 0)

    assert script.play(steps) == 0
    assert script.where[3] == "c" and FIRST in script.removed
    assert script.made("start_env_server", 3)[0].words[4] == "10.0.0.1:0"
    assert "env server 0 is lost on 10.0.0.2: its node died; it is started again" in script.said


def test_nodes_that_are_lost_are_no_deaths_of_who_was_on_them() -> None:
    script = Script(env_servers=1)

    def steps() -> Iterator[object]:
        learners, first, second = NODES
        alive = [[learners, second], [learners, first]] * 2
        for actor, nodes in enumerate(alive, start=FIRST):
            while not script.made("follow", actor):
                yield None
            script.nodes_alive = nodes
            yield script.loses(actor)
        while not script.made("follow", 5):
            yield None
        yield script.reports(LEARNER, 0)

    assert script.play(steps) == 0
    assert len(script.made("start_env_server")) == 5
    assert all(line.endswith("it is started again") for line in script.said[1:])


def test_an_actor_that_is_lost_on_a_node_that_lives_counts_as_a_death() -> None:
    script = Script(env_servers=1)

    def steps() -> Iterator[object]:
        for actor in (1, 2, 3):
            while not script.made("follow", actor):
                yield None
            yield script.loses(actor)
        yield None
        yield script.reports(LEARNER, 0)

    assert script.play(steps) == 4
    assert script.said[-1] == ("seedrl: error: env server 0 is lost on 10.0.0.2: its node died")


def test_a_learner_that_dies_is_started_again_and_env_servers_find_it_where_it_was() -> None:
    script = Script()

    def steps() -> Iterator[object]:
        # They have heard that the run is over: they are started again, too.
        yield script.reports(SECOND, 0, "1 2 env server 3: ends: finished: training is over")
        yield script.reports(LEARNER, 75)
        yield None
        yield script.reports(LEARNER, 0)

    assert script.play(steps) == 0
    assert len(script.made("start_learner", LEARNER)) == 2
    assert len(script.made("start_env_server", FIRST)) == 1
    assert len(script.made("start_env_server", SECOND)) == 2
    assert "the learner ended with 75; it resumes from /runs/mine" in script.said


def test_a_learner_whose_node_is_lost_begins_elsewhere_and_env_servers_learn_its_address() -> None:
    script = Script()

    def steps() -> Iterator[object]:
        del script.nodes_alive[0]
        script.sees_folder = False
        yield script.loses(LEARNER)
        for _ in range(3):
            yield None
        assert [call.words[4] for call in script.made("start_env_server", SECOND)] == [
            "10.0.0.1:0",
            "10.0.0.2:3",
        ]
        # What they did before is over: it is no news.
        stale = script.made("follow", SECOND)[0]
        script.answers[stale] = Report(1, "", 143)
        yield None
        yield script.reports(3, 0)

    assert script.play(steps) == 0
    (before, after) = script.made("start_learner")
    assert (before.words[3], after.words[3]) == ("10.0.0.1", "10.0.0.2")
    assert script.said[1:4] == [
        "the learner is lost on 10.0.0.1: its node died; it resumes from /runs/mine",
        "learner on 10.0.0.2, run folder /runs/mine",
        "warning: /runs/mine is not shared: 10.0.0.2 does not see there what the learner has "
        "written; the learner began there without it",
    ]
    assert len(script.made("start_env_server", SECOND)) == 2


def test_a_learner_that_finds_no_other_node_is_waited_for_and_a_signal_ends_the_wait() -> None:
    script = Script()

    def steps() -> Iterator[object]:
        script.held.add("place")
        yield script.loses(LEARNER)
        script.seconds += 20
        yield None
        yield script.run.signal(signal.SIGTERM)

    assert script.play(steps) == 143
    assert script.said[2:] == [
        "learner is not placed yet: it needs 2 x CPU and 1 x GPU of one node",
        f"SIGTERM, while there was no learner; this resumes from its newest checkpoint: {RESUMES}",
    ]
    # An actor that is nowhere yet is not asked to end.
    assert [call.actor for call in script.made("end")] == [FIRST, SECOND]
    assert script.removed == [LEARNER, FIRST, SECOND, 3]


def test_an_actor_that_owes_several_answers_is_lost_once() -> None:
    script = Script(env_servers=1)

    def steps() -> Iterator[object]:
        script.held.add("start_env_server")
        yield script.loses(LEARNER)
        while len(script.made("start_env_server")) < 2:
            yield None
        script.loses(FIRST)
        yield script.answers.update({script.made("start_env_server")[1]: LostError("the same")})
        yield None
        yield script.reports(2, 0)

    assert script.play(steps) == 0
    assert len(script.where) == 4


def test_a_start_that_another_one_has_overtaken_is_not_followed() -> None:
    script = Script(env_servers=1)
    script.held.add("start_env_server")

    def steps() -> Iterator[object]:
        yield script.loses(LEARNER)
        while len(script.made("start_env_server")) < 2:
            yield None
        for start in script.made("start_env_server"):
            yield script.answers.update({start: Started("", True)})
        yield None
        yield script.reports(2, 0)

    assert script.play(steps) == 0
    assert [call.words for call in script.made("follow", FIRST)] == [(2,)]


def test_a_folder_that_an_env_server_does_not_see_is_said_once() -> None:
    script = Script()
    script.sees_folder = False

    def steps() -> Iterator[object]:
        yield script.reports(LEARNER, 0)

    assert script.play(steps) == 0
    (line,) = script.said[1:]
    assert line.startswith("warning: /runs/mine is not shared: 10.0.0.2 does not see")


def test_a_folder_that_a_lost_learner_still_holds_is_waited_for() -> None:
    script = Script()

    def steps() -> Iterator[object]:
        yield script.loses(LEARNER)
        while not script.made("follow", 3):
            yield None
        yield script.reports(3, 98)
        began = script.seconds
        while len(script.made("follow", 3)) == 1:
            yield None
        assert script.seconds - began >= 10.0
        yield script.reports(3, 0)

    assert script.play(steps) == 0


def test_a_folder_that_is_taken_is_waited_for_longer_than_a_learner_may_die() -> None:
    script = Script()

    def steps() -> Iterator[object]:
        yield script.loses(LEARNER)
        for starts in range(1, 10):
            while len(script.made("follow", 3)) < starts:
                yield None
            yield script.reports(3, 98)
        while len(script.made("follow", 3)) < 10:
            yield None
        yield script.reports(3, 0)

    assert script.play(steps) == 0


def test_a_folder_that_is_never_free_ends_the_run() -> None:
    script = Script()

    def steps() -> Iterator[object]:
        yield script.loses(LEARNER)
        while not script.made("follow", 3):
            yield None
        yield script.reports(3, 98)
        script.seconds += 1000
        while len(script.made("follow", 3)) < 2:
            yield None
        yield script.reports(3, 98)

    assert script.play(steps) == 98
    assert script.said[-1] == (
        "seedrl: error: the learner ended with 98, for 15 minutes: another one holds the run's "
        f"folder; this resumes from its newest checkpoint: {RESUMES}"
    )


def test_an_actor_that_does_not_answer_is_asked_again() -> None:
    script = Script()

    def steps() -> Iterator[object]:
        script.answers[script.made("follow", LEARNER)[-1]] = UnansweredError()
        while len(script.made("follow", LEARNER)) == 1:
            yield None
        yield script.reports(LEARNER, 0)

    assert script.play(steps) == 0
    assert len(script.made("start_learner")) == 1
