"""The command line."""

import pytest

from envs_server.options import read_options
from seedrl.errors import ConfigError


def test_defaults_and_patterns() -> None:
    options = read_options(["--learner", "unix:/x", "--num-envs", "8"])
    assert (options.learner, options.num_envs, options.num_groups) == ("unix:/x", 8, 2)
    assert options.allowed == ()
    given = ["--learner", "h:1", "--num-envs", "1", "--allow-env", "a:*", "b:*", "--allow-env", "c"]
    options = read_options(given)
    assert options.allowed == ("a:*", "b:*", "c")
    assert options.num_groups == 1  # no empty group


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--num-envs", "1"], "--learner"),
        (["--learner", "h:1", "--num-envs", "0"], "at least one environment"),
        (["--learner", "h:1", "--num-envs", "2", "--group", "3"], "did you mean --groups?"),
        # Without a port gRPC would take 443, and wait for ever.
        (["--learner", "127.0.0.1", "--num-envs", "2"], "expected host:port with a port of 1 to"),
        (["--learner", "h:0", "--num-envs", "2"], "got 'h:0'"),
        (["--learner", "h:1", "--num-envs", "1", "--processes", "0"], "expected at least 1, got 0"),
        (
            ["--learner", "h:1", "--num-envs", "1", "--processes", "2", "--play", "f"],
            "expected 1 with --play, got 2",
        ),
        (
            ["--learner", "h:1", "--num-envs", "1", "--groups", "1001"],
            "--groups: expected at most 1000",
        ),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_options(arguments)
    assert reason in str(caught.value) and "\n" not in str(caught.value)
    assert str(caught.value).endswith("(see python -m envs_server --help)")
