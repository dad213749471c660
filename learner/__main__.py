"""`python -m learner`: see `learner.cli.train`."""


def main() -> int:
    """Runs a learner; returns its exit code (`seedrl.exit_codes.ExitCode`)."""
    from seedrl.programs.signals import end_on_signals

    end_on_signals()
    from learner.cli import train

    return train.main()


if __name__ == "__main__":
    status = main()
    # Not in `main`, whose caller may be a process that continues.
    from learner.processes.stop import end_with

    end_with(status)
