"""The page in a browser, of runs that `SimulatedRun` writes."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from learner.extras.watch.application import listen, web_server
from tests.learner.extras.watch import browser as chromium
from tests.learner.extras.watch.browser import Browser
from tests.learner.extras.watch.simulated_run import SimulatedRun
from tests.patience import SECONDS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        chromium.find() is None, reason="needs Chromium: apt-get install chromium on Debian"
    ),
]


# So far ahead that no machine is slow enough for the run to look dead.
ALIVE = time.time() + 3600


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


@pytest.fixture
def url(browser: Browser, tmp_path: Path) -> Iterator[str]:
    """Of the page that shows the runs below `tmp_path`."""
    with listen("127.0.0.1", 0) as listening:
        server = web_server(tmp_path)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        browser.open("about:blank")
        server.should_exit = True
        thread.join(SECONDS)
        assert not thread.is_alive()


def text_of(selector: str) -> str:
    return f"document.querySelector('{selector}').innerText"


def test_a_live_run_of_100_env_servers(browser: Browser, url: str, tmp_path: Path) -> None:
    run = SimulatedRun(tmp_path / "live", env_servers=100, now=ALIVE)
    for _ in range(10):
        run.advance(5)
    browser.open(url)
    browser.wait(f"{text_of('#link')} === 'live'")
    browser.wait("document.querySelectorAll('#servers-table tbody tr').length === 100")
    row = browser.value(text_of("#servers-table tbody tr"))
    assert row.split("\t")[:2] == [run.name(7), "hung: group 1"]
    assert "3 hung · 95 live · 2 left" in browser.value(text_of("#servers-note"))
    # What a peer sends is text.
    assert "<b>licence</b>" in browser.value(text_of("#servers-table"))
    assert browser.value("document.querySelectorAll('#curve canvas').length") == 1
    assert browser.value("document.querySelectorAll('#ledger .verdict.bad').length") == 0
    # Each change of the files arrives without the page being loaded again.
    for steps in (1_000_001, 1_000_002):
        run.steps = steps
        run.write_status()
        browser.wait(f"{text_of('#progress-text')}.startsWith('{steps:,} of')")
    run.say("hung", "a group <i>hangs</i>", is_problem=True)
    browser.wait(f"{text_of('#events li')}.endsWith('a group <i>hangs</i>')")
    assert browser.errors == []


def test_a_finished_run_says_why(browser: Browser, url: str, tmp_path: Path) -> None:
    run = SimulatedRun(tmp_path / "finished")
    for _ in range(10):
        run.advance(5)
    run.finish()
    browser.open(url)
    browser.wait(f"{text_of('#state')} === 'finished'")
    assert browser.value(text_of("#sentence")) == run.reason
    assert browser.value(text_of("#link")) == "not running"
    assert browser.errors == []


def test_a_run_that_was_killed_gives_no_sign_of_life(
    browser: Browser, url: str, tmp_path: Path
) -> None:
    SimulatedRun(tmp_path / "killed", now=time.time() - 3600).advance(5)
    browser.open(url)
    browser.wait(f"{text_of('#state')}.startsWith('no sign of life for 0:59:')")
    assert browser.errors == []


def test_three_runs_beside_each_other(browser: Browser, url: str, tmp_path: Path) -> None:
    for seed, name in enumerate(("one", "two", "three")):
        run = SimulatedRun(tmp_path / name, seed=seed, steps_per_second=9_000 + 2_000 * seed)
        for _ in range(20):
            run.advance(5)
    browser.open(f"{url}?run=two")
    browser.wait("document.querySelectorAll('#runs-table tbody tr').length === 3")
    labels = f"{text_of('#curve .legend')}"
    browser.wait(f"{labels}.includes('three evaluation')")
    assert browser.value(text_of("#run-name")) == "two"
    browser.value("document.querySelector('#runs-table tbody tr').click()")
    browser.wait(f"{text_of('#run-name')} === 'one'")
    browser.value("document.querySelector('[aria-label=\"three in the learning curve\"]').click()")
    browser.wait(f"!{labels}.includes('three evaluation') && {labels}.includes('two evaluation')")
    browser.value("document.querySelector('[data-x=elapsed_seconds]').click()")
    browser.wait("document.querySelector('[data-x=elapsed_seconds]').ariaPressed === 'true'")
    assert browser.errors == []
