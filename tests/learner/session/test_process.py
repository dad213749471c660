"""What tuning changes of a process, in one of its own."""

import subprocess
import sys


def test_threads_ask_for_the_interpreter_soon_and_programs_are_cached() -> None:
    code = (
        "import jax, sys; from learner.session.process import tune_process; "
        "tune_process(keeps_freed_memory=False); "
        "print(sys.getswitchinterval(), jax.config.jax_compilation_cache_dir)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"XDG_CACHE_HOME": "/some/cache", "PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == ["0.0005", "/some/cache/seedrl/jax"], done.stderr
