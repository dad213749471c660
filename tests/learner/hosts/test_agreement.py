"""One decision of all votes."""

from learner.hosts.agreement import Decision, Vote, decide

IDLE = Vote(0, (), is_able=True)


def test_steps_are_added_and_shards_stand_in_the_order_of_hosts() -> None:
    votes = [Vote(3, [1, 2], is_able=True), Vote(0, [0, 4], is_able=True)]
    assert decide(votes) == Decision(3, [1, 2, 0, 4], are_able=True, is_saved=False, end="")


def test_one_that_is_not_able_keeps_all_from_learning() -> None:
    assert not decide([IDLE, IDLE._replace(is_able=False)]).are_able


def test_one_that_wants_a_save_is_enough() -> None:
    assert decide([IDLE, IDLE._replace(wants_save=True)]).is_saved


def test_the_end_has_a_save_of_its_own() -> None:
    ends = IDLE._replace(wants_end="STOPPED by a signal")
    found = decide([IDLE._replace(wants_save=True), ends, ends._replace(wants_end="later")])
    assert (found.is_saved, found.end) == (False, "STOPPED by a signal")


def test_a_vote_survives_the_way_through_json() -> None:
    vote = Vote(7, [1], is_able=False, wants_save=True, wants_end="x")
    assert Vote.from_json(list(vote)) == vote
