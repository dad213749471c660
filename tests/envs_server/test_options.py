"""The command line."""

import pytest

from envs_server.options import read_options
from seedrl.errors import ConfigError


def test_defaults_and_patterns() -> None:
    options = read_options(["--learner", "unix:/x", "--num-envs", "8"])
    assert (options.learner, options.num_envs, options.num_groups) == ("unix:/x", 8, 2)
    assert options.allow_env == ()
    given = ["--learner", "h:1", "--num-envs", "1", "--allow-env", "a:*", "b:*", "--allow-env", "c"]
    options = read_options(given)
    assert options.allow_env == ("a:*", "b:*", "c")
    assert options.num_groups == 1  # no empty group


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--num-envs", "1"], "--learner"),
        (["--learner", "h:1", "--num-envs", "0"], "--num-envs"),
        (["--learner", "h:1", "--num-envs", "x"], "--num-envs"),
        (["--learner", "h:1", "--num-envs", "2", "--group", "3"], "--group"),
        # Without a port gRPC would take 443, and wait for ever.
        (["--learner", "127.0.0.1", "--num-envs", "2"], "--learner"),
        (["--learner", "h:0", "--num-envs", "2"], "h:0"),
        (["--learner", "h:1", "--num-envs", "1", "--processes", "0"], "--processes"),
        (["--learner", "h:1", "--num-envs", "1", "--groups", "1001"], "--groups"),
        (["--learner", "h:1", "--num-envs", "1", "--token-file", "f"], "--token-file"),
        (["--learner", "h:1", "--num-envs", "1", "--certificate", "f"], "--certificate"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_options(arguments)
    assert named in str(caught.value) and "\n" not in str(caught.value)
    assert str(caught.value).endswith("(see python -m envs_server --help)")
