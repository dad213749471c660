"""Seeds of environments and sessions."""

from learner.serving.environment_seeds import environment_seed, session_seed


def test_the_seed_of_a_slot_and_epoch_is_the_same_on_every_machine() -> None:
    # First four bytes of SHA-256 of b"1/2/3", little-endian, without the lowest bit.
    assert environment_seed(1, 2, 3) == 1470002382


def test_a_session_has_the_same_seeds_again_under_the_same_run_seed() -> None:
    assert session_seed(3, "session 1") == session_seed(3, "session 1")
    assert session_seed(3, "session 1") != session_seed(4, "session 1")
