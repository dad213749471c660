"""The checker's command line."""

import pytest

from envs_server.conformance.options import read_options
from seedrl.errors import ConfigError


def test_what_is_named_may_be_built() -> None:
    words = "a.b:make --wrappers c:d e:f --allow-env g.* --wrappers h:i --steps 5"
    options = read_options(words.split())
    assert options.wrapper_names == ("c:d", "e:f", "h:i")
    assert options.allowed == ("a.b:make", "c:d", "e:f", "h:i", "g.*")
    assert (options.num_envs, options.steps, options.vectorization) == (4, 5, "auto")
    assert read_options(["x", "--vectorization", "seeded"]).vectorization == "seeded"


def test_a_registered_id_allows_no_factory() -> None:
    assert read_options(["CartPole-v1"]).allowed == ()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "ENVIRONMENT"),
        (["x", "--num-envs", "0"], "at least one environment and one step"),
        (["x", "--steps", "0"], "at least one environment and one step"),
        (["x", "--seed", str(2**31 - 3)], "expected --seed of 0 to 2^31 - num_envs"),
        (["x", "--seed", "-1"], "expected --seed of 0 to"),
        (["x", "--vectorization", "fast"], "fast"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_options(arguments)
    assert reason in str(caught.value) and "\n" not in str(caught.value)


def test_help_names_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        read_options(["--help"])
    assert end.value.code == 0
    assert "Exit codes: 0" in capsys.readouterr().out
