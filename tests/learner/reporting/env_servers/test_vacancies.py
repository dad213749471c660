"""How many slots are filled is said once it has settled, and once."""

from typing import Any

import pytest

from learner.reporting.env_servers.vacancies import Vacancies
from learner.reporting.status import Slots


class Said:
    """What was said."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.fields: list[dict[str, Any]] = []

    def say(self, kind: str, text: str, **fields: Any) -> None:
        assert kind == "slots_filled"
        self.texts.append(text)
        self.fields.append(fields)


@pytest.fixture
def said() -> Said:
    return Said()


def look(vacancies: Vacancies, training: int, evaluation: int, now: float) -> None:
    vacancies.look(Slots(total=32, live=training), Slots(total=8, live=evaluation), now)


def test_a_run_with_unfilled_slots_says_so_once_and_each_change_once(said: Said) -> None:
    vacancies = Vacancies(said, 0.0)
    for now in (1.0, 9.0):
        look(vacancies, 15, 1, now)
    look(vacancies, 16, 1, 10.0)  # another one has joined: it has not settled yet
    look(vacancies, 16, 1, 19.9)
    assert said.texts == []
    for now in (20.0, 30.0, 500.0):
        look(vacancies, 16, 1, now)
    assert said.texts == [
        "17 of 40 slots filled (16 of 32 train, 1 of 8 evaluate), learning with those"
    ]
    assert said.fields == [{"filled": 17, "slots": 40}]
    look(vacancies, 32, 8, 501.0)
    look(vacancies, 32, 8, 511.0)
    look(vacancies, 0, 8, 512.0)
    look(vacancies, 0, 8, 522.0)
    assert said.texts[1:] == [
        "40 of 40 slots filled",
        "8 of 40 slots filled (0 of 32 train, 8 of 8 evaluate), learning from nothing new until an "
        "env server trains",
    ]


def test_a_run_whose_slots_are_filled_and_one_without_env_servers_say_nothing(said: Said) -> None:
    vacancies = Vacancies(said, 0.0)
    for now in (1.0, 20.0):
        look(vacancies, 0, 0, now)
    for now in (21.0, 40.0):
        look(vacancies, 32, 8, now)
    assert said.texts == []


def test_a_restart_that_is_over_soon_is_not_worth_a_line(said: Said) -> None:
    vacancies = Vacancies(said, 0.0)
    for now, number in ((1.0, 32), (50.0, 16), (59.0, 16), (59.5, 32), (90.0, 32)):
        look(vacancies, number, 8, now)
    assert said.texts == []


@pytest.mark.parametrize(
    ("training", "follows"),
    [(16, "learning waits for all that train (learning.regime)"), (32, "learning with those")],
)
def test_where_a_batch_has_all_slots_it_waits_for_those_that_train(
    said: Said, training: int, follows: str
) -> None:
    vacancies = Vacancies(said, 0.0, learns_without_all=False)
    look(vacancies, training, 1, 1.0)
    look(vacancies, training, 1, 11.0)
    assert said.texts[0].endswith(f"evaluate), {follows}")
