"""Curves of two programs that count alike."""

from tests.benchmarks.peers.pong_curves import Point, of_appo, of_metrics, thinned


def _record(seconds: float, episodes: float, mean_return: float) -> dict[str, float]:
    return {
        "elapsed_seconds": seconds,
        "env_steps": 100.0 * seconds,
        "episodes/training": episodes,
        "return/training": mean_return,
    }


def test_a_point_is_the_mean_of_the_last_hundred_episodes() -> None:
    records = [
        {"elapsed_seconds": 1.0, "env_steps": 100.0},
        _record(10.0, 60.0, -20.0),
        _record(20.0, 100.0, -10.0),
        _record(25.0, 100.0, -10.0),  # none has ended since
        _record(30.0, 160.0, 5.0),
    ]
    assert of_metrics(records) == [
        Point(10.0, 1000, -20.0),
        Point(20.0, 2000, -16.0),  # (60 x -20 + 40 x -10) / 100
        Point(30.0, 3000, -1.0),  # (40 x -10 + 60 x 5) / 100
    ]


def test_who_has_no_episodes_yet_has_no_point() -> None:
    points = [
        {"seconds": 10.0, "steps": 64, "return": None},
        {"seconds": 20.0, "steps": 128, "return": -20.5},
    ]
    assert of_appo(points) == [Point(20.0, 128, -20.5)]


def test_the_last_point_of_each_minute_is_kept() -> None:
    curve = [Point(each, 0, 0.0) for each in (10.0, 50.0, 60.0, 119.0, 125.0)]
    assert [point.seconds for point in thinned(curve, 60.0)] == [50.0, 119.0, 125.0]
