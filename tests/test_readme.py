"""The README's snippets are a package that trains, and its commands exist."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()


def _snippets() -> dict[str, str]:
    """The README's Python files: those whose first line names them."""
    blocks = re.findall(r"```python\n# (\S+\.py)\n(.*?)```", README, re.DOTALL)
    return dict(blocks)


def test_each_extension_snippet_is_under_20_lines_of_code() -> None:
    snippets = _snippets()
    assert len(snippets) == 4
    for name, text in snippets.items():
        code = [line for line in text.splitlines() if line.strip()]
        assert len(code) < 20, name


def test_the_snippets_train_together(tmp_path: Path) -> None:
    for name, text in _snippets().items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    flags = (
        "--workdir run --serving.training-slots 4 --serving.evaluation-slots 2 "
        "--replay.min-steps 100 --learning.total-steps 600 --env-servers 1"
    )
    done = subprocess.run(
        [sys.executable, "-m", "learner.cli.main", "train", "my_config.py", *shlex.split(flags)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "learning_curve.png").exists()


@pytest.mark.parametrize("target", sorted(set(re.findall(r"^make (\w+)", README, re.MULTILINE))))
def test_every_make_target_of_the_readme_exists(target: str) -> None:
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    assert re.search(rf"^{target}:", makefile, re.MULTILINE)
