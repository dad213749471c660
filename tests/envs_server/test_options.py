"""The command line."""

import pytest

from envs_server.options import read_options


def test_defaults_and_patterns() -> None:
    options = read_options(["--learner", "unix:/x", "--num-envs", "8"])
    assert (options.learner, options.num_envs, options.num_groups) == ("unix:/x", 8, 2)
    assert options.allowed == ()
    given = ["--learner", "x", "--num-envs", "1", "--allow-env", "a:*", "b:*", "--allow-env", "c"]
    options = read_options(given)
    assert options.allowed == ("a:*", "b:*", "c")
    assert options.num_groups == 1  # no empty group


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--num-envs", "1"], "--learner"),
        (["--learner", "x", "--num-envs", "0"], "at least one environment"),
        (["--learner", "x", "--num-envs", "2", "--colour", "red"], "--colour"),
    ],
)
def test_a_wrong_command_line_exits_2(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        read_options(arguments)
    assert end.value.code == 2
    assert reason in capsys.readouterr().err


def test_help_names_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_options(["--help"])
    assert "Exit codes: 0" in capsys.readouterr().out
