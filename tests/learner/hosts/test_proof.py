"""Who may meet: over real ports, in threads."""

import socket

import pytest

from learner.hosts.hello import Hello
from learner.hosts.messages import MessageSocket
from learner.hosts.proof import Token
from seedrl.errors import ConfigError
from tests.learner.hosts.linked import at_once
from tests.learner.hosts.test_meeting import (
    PATIENT,
    RUN,
    TOKEN,
    arrive,
    connected,
    places,
    received,
    say_hello,
    welcome_all,
)

SAID = {"what": ["a", 1]}


def test_a_proof_is_for_one_side_one_meeting_and_one_text() -> None:
    proof = TOKEN.proof("other", ("a", "b"), SAID)
    assert TOKEN.accepts(proof, "other", ("a", "b"), SAID)
    assert not TOKEN.accepts(proof, "first", ("a", "b"), SAID)
    assert not TOKEN.accepts(proof, "other", ("c", "b"), SAID)
    assert not TOKEN.accepts(proof, "other", ("a", "c"), SAID)
    assert not TOKEN.accepts(proof, "other", ("a", "b"), {"what": ["a", 2]})
    assert not Token("another token").accepts(proof, "other", ("a", "b"), SAID)
    assert not Token().accepts(proof, "other", ("a", "b"), SAID)
    for other in (None, 7, "", "é", "\ud800", proof[:-1]):
        assert not TOKEN.accepts(other, "other", ("a", "b"), SAID)
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert not TOKEN.accepts(proof, "other", ("a", "b"), deep)


@pytest.mark.parametrize("token", [Token("another token"), Token()])
def test_a_host_without_the_token_is_refused_and_the_first_one_waits_on(token: Token) -> None:
    two, lines = places(2), list[str]()

    def refused_twice() -> str:
        texts = set()
        for _ in range(2):
            with pytest.raises(ConfigError) as found:
                arrive(two[1], Hello(1, 2, RUN), token=token)
            texts.add(str(found.value))
        arrive(two[1], Hello(1, 2, RUN))
        (text,) = texts
        return text

    waiting = PATIENT._replace(report=lines.append)
    met, text = at_once([lambda: welcome_all(two[0], Hello(0, 2, RUN), waiting), refused_twice])
    assert met == [1]
    assert text.startswith("--token-file: expected the token of host 0, got another one or none")
    assert lines == ["refuses a host at 127.0.0.1: it does not have this run's token"]


def test_a_hello_that_was_heard_elsewhere_admits_nobody() -> None:
    two = places(2)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def overheard() -> dict[str, str]:
            """What a host says to whom it takes for the first one."""
            link = MessageSocket(socket.create_connection(listener.getsockname()))
            say_hello(link, Hello(1, 2, RUN))
            link.close()
            return {}

        def thief() -> dict[str, str]:
            connection, _ = listener.accept()
            host = MessageSocket(connection)
            host.send({"challenge": "the thief's own"})
            (hello,) = received(host)
            link = MessageSocket(connected(two[0]))
            received(link)
            link.send(hello)
            (refusal,) = received(link)
            link.close()
            host.close()
            arrive(two[1], Hello(1, 2, RUN))
            return refusal

        found = at_once([lambda: welcome_all(two[0], Hello(0, 2, RUN)), thief, overheard])
    assert found[0] == [1]
    assert found[1]["refused"].startswith("--token-file:")


def test_a_first_host_that_does_not_show_the_token_is_not_believed() -> None:
    _, place = places(2)
    with socket.create_server(place.address) as listener:

        def impostor() -> None:
            link = MessageSocket(listener.accept()[0])
            link.send({"challenge": "anything"})
            (hello,) = received(link)
            # What it was sent itself is no proof of the other side.
            link.send({"welcome": {"jax": "here:1"}, "proof": hello["proof"]})
            with pytest.raises(EOFError):
                received(link)
            link.close()

        def host() -> str:
            with pytest.raises(ConfigError) as found:
                arrive(place, Hello(1, 2, RUN))
            return str(found.value)

        _, text = at_once([impostor, host])
    assert text.startswith(f"--coordinator: who answers at {place.coordinator} does not have")


def test_hosts_without_a_token_meet_on_a_network_that_is_trusted() -> None:
    two = places(2)
    found = at_once(
        [
            lambda: welcome_all(two[0], Hello(0, 2, RUN), token=Token()),
            lambda: arrive(two[1], Hello(1, 2, RUN), token=Token()),
        ]
    )
    assert found == [[1], {"jax": "there:1"}]
