"""The command line."""

from envs_server.options import read_options


def test_defaults_and_patterns() -> None:
    options = read_options(["--learner", "unix:/x", "--num-envs", "8"])
    assert (options.learner, options.num_envs, options.num_groups) == ("unix:/x", 8, 2)
    assert options.allow_env == ()
    given = ["--learner", "h:1", "--num-envs", "1", "--allow-env", "a:*", "b:*", "--allow-env", "c"]
    options = read_options(given)
    assert options.allow_env == ("a:*", "b:*", "c")
    assert options.num_groups == 1  # no empty group
