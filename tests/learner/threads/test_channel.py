import threading
from collections.abc import Callable

import pytest

from learner.threads.channel import Channel, ClosedError
from tests.patience import SECONDS


def _in_thread(call: Callable[[], object]) -> Callable[[], object]:
    """Starts `call` in a thread; what comes back waits for its result."""
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(call()), daemon=True)
    thread.start()

    def result() -> object:
        thread.join(SECONDS)
        assert not thread.is_alive()
        return results[0]

    return result


def test_everything_comes_out_once_and_in_order() -> None:
    channel: Channel[int] = Channel(3)
    assert [channel.put(item, timeout=0.0) for item in (1, 2, 3)] == [True] * 3
    assert channel.take_all(timeout=0.0) == [1, 2, 3]
    assert channel.take_all(timeout=0.0) == []


def test_a_full_channel_takes_nothing_more() -> None:
    channel: Channel[int] = Channel(2)
    assert [channel.put(item, timeout=0.0) for item in (1, 2, 3)] == [True, True, False]
    assert channel.take_all(timeout=0.0) == [1, 2]
    assert channel.put(4, timeout=0.0)


def test_a_sender_waits_for_room() -> None:
    channel: Channel[int] = Channel(1)
    channel.put(1, timeout=0.0)
    result = _in_thread(lambda: channel.put(2, timeout=SECONDS))
    assert channel.take_all(timeout=0.0) == [1]
    assert result() is True
    assert channel.take_all(timeout=0.0) == [2]


def test_a_receiver_waits_for_a_first_item() -> None:
    channel: Channel[int] = Channel(1)
    result = _in_thread(lambda: channel.take_all(timeout=SECONDS))
    channel.put(1, timeout=0.0)
    assert result() == [1]


def test_items_can_be_taken_one_at_a_time_and_each_makes_room() -> None:
    channel: Channel[int] = Channel(2)
    result = _in_thread(lambda: channel.take(timeout=SECONDS))
    channel.put(1, timeout=SECONDS)
    assert result() == [1]
    assert [channel.put(item, timeout=0.0) for item in (2, 3, 4)] == [True, True, False]
    assert len(channel) == 2
    assert channel.take(timeout=0.0) == [2]
    assert channel.put(4, timeout=0.0)
    assert [channel.take(timeout=0.0) for _ in range(3)] == [[3], [4], []]


def test_closing_wakes_a_waiting_sender() -> None:
    channel: Channel[int] = Channel(1)
    channel.put(1, timeout=0.0)

    def put() -> str:
        try:
            return str(channel.put(2, timeout=SECONDS))
        except ClosedError:
            return "closed"

    result = _in_thread(put)
    channel.close()
    assert result() == "closed"


def test_closing_wakes_a_waiting_receiver() -> None:
    channel: Channel[int] = Channel(1)
    result = _in_thread(lambda: channel.take_all(timeout=SECONDS))
    channel.close()
    assert result() == []


def test_after_closing_what_is_queued_can_be_taken_and_nothing_be_added() -> None:
    channel: Channel[int] = Channel(2)
    channel.put(1, timeout=0.0)
    channel.close()
    with pytest.raises(ClosedError):
        channel.put(2, timeout=0.0)
    assert channel.take_all(timeout=0.0) == [1]
