"""The page in a browser, of runs that `SimulatedRun` writes."""

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.learner.extras.watch import browser as chromium
from tests.learner.extras.watch.browser import Browser
from tests.learner.extras.watch.served import served
from tests.learner.extras.watch.simulated_run import SimulatedRun

ROOT = Path(__file__).parents[4]

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
    with served(tmp_path) as url:
        browser.show()
        yield url
        browser.open("about:blank")


# Each visible element with a text of its own: the text, its colour, the backgrounds from its own to
# the page's, and True if it is large.
TEXTS = """
[...document.querySelectorAll('body *')].filter((node) => node.checkVisibility()
  && [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim()))
.map((node) => {
  const numbers = (css) => css.match(/[0-9.]+/g).map(Number);
  const layers = [];
  for (let at = node; at; at = at.parentElement)
    layers.push(numbers(getComputedStyle(at).backgroundColor));
  const {color, fontSize, fontWeight} = getComputedStyle(node);
  const size = parseFloat(fontSize);
  const isLarge = size >= 24 || (size >= 18.66 && fontWeight >= 700);
  return [node.textContent, numbers(color), layers, isLarge];
})
"""


def over(top: Sequence[float], below: Sequence[float]) -> list[float]:
    """One colour, red, green, blue and perhaps alpha, on an opaque one."""
    alpha = top[3] if len(top) == 4 else 1.0
    return [alpha * a + (1 - alpha) * b for a, b in zip(top[:3], below[:3], strict=True)]


def contrast(one: Sequence[float], other: Sequence[float]) -> float:
    """The ratio of WCAG 2.2, of colours from 0 to 255."""

    def luminance(colour: Sequence[float]) -> float:
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
                  for c in (value / 255 for value in colour)]  # fmt: skip
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        *((1400, "light"), (390, "dark")),
        *(
            pytest.param(*other, marks=pytest.mark.gate)
            for other in [(1400, "dark"), (390, "light")]
        ),
    ],
)
def test_the_page_fits_the_screen_and_can_be_read(
    browser: Browser, url: str, tmp_path: Path, width: int, scheme: str
) -> None:
    for name in ("cartpole_r2d2__0__a_long_name_of_a_run", "cartpole_r2d2__1"):
        run = SimulatedRun(tmp_path / name, env_servers=50, now=ALIVE)
        run.say("hung", "/".join(["a_folder_without_any_space"] * 8), is_problem=True)
        for _ in range(10):
            run.advance(5)
    browser.show(width, 844, scheme)
    browser.open(url)
    browser.wait("document.querySelectorAll('#servers-table tbody tr').length === 50")
    browser.value("document.querySelector('summary').click()")
    browser.wait("document.querySelectorAll('#config-table tr').length > 3")
    assert browser.value("document.documentElement.scrollWidth") == width
    page = [20, 23, 26] if scheme == "dark" else [246, 246, 244]
    faults = []
    texts = browser.value(TEXTS)
    assert len(texts) > 200
    for text, colour, layers, is_large in texts:
        background: Sequence[float] = page
        for layer in reversed(layers):
            background = over(layer, background)
        ratio = contrast(over(colour, background), background)
        if ratio < (3 if is_large else 4.5):
            faults.append(f"{text}: {ratio:.2f}")
    assert faults == []
    panel = [27, 31, 36] if scheme == "dark" else [255, 255, 255]
    for number in range(8):
        line = browser.value(f"colour('run-{number}').match(/[0-9]+/g).map(Number)")
        assert contrast(line, panel) >= 3, f"run {number}"
    if width == 390:
        # Cells too: a row of a table is not wider than the screen.
        outside = "document.querySelectorAll('.scroll *')"
        assert (
            browser.value(f"[...{outside}].filter((e) => e.getBoundingClientRect().right > 390)")
            == []
        )
        small = "[...document.querySelectorAll('button, .option, .tick, summary')]"
        small += (
            ".map((e) => e.getBoundingClientRect()).filter((r) => r.width && r.height < 32).length"
        )
        assert browser.value(small) == 0
    assert browser.errors == []


def test_zoom_smoothing_and_colours(browser: Browser, url: str, tmp_path: Path) -> None:
    run = SimulatedRun(tmp_path / "run")
    for _ in range(20):
        run.advance(5)
    browser.open(url)
    browser.wait("Boolean(charts.curve && charts.curve.chart)")
    browser.value("document.querySelector('#curve').scrollIntoView({block: 'center'})")
    scale = "(({min, max}) => [min, max])(charts['number loss'].chart.scales.x)"
    whole = browser.value(scale)
    left, top, wide, high = browser.value(
        "(({x, y, width, height}) => [x, y, width, height])"
        "(document.querySelector('#curve .u-over').getBoundingClientRect())"
    )
    browser.drag(*((left + wide * share, top + high / 2) for share in (0.25, 0.4, 0.6, 0.75)))
    browser.wait("document.querySelector('#reset-zoom').checkVisibility()")
    low, high = browser.value(scale)
    # All charts, and new rows leave it as it is.
    assert whole[0] < low < high < whole[1]
    run.advance(5)
    browser.wait(f"page.detail.columns.env_steps.at(-1) === {run.steps}")
    assert browser.value(scale) == [low, high]
    browser.value("document.querySelector('#reset-zoom').click()")
    assert browser.value(scale)[1] == run.steps
    assert browser.value("smoothed([0, 1, null, 1], 0.5)") == pytest.approx([0, 2 / 3, None, 6 / 7])
    lines = "charts.curve.chart.series.length"
    before = browser.value(lines)
    browser.value("Object.assign(document.querySelector('#smoothing'), {value: 0.5})"
                  ".dispatchEvent(new Event('input'))")  # fmt: skip
    assert browser.value(lines) == before + 1  # the raw training returns; evaluations are exact
    background = "getComputedStyle(document.body).backgroundColor"
    assert browser.value(background) == "rgb(246, 246, 244)"
    browser.value("document.querySelector('#theme').click()")
    assert browser.value(background) == "rgb(20, 23, 26)"
    browser.open(browser.value("location.href"))
    assert browser.value(background) == "rgb(20, 23, 26)"
    assert browser.errors == []


def test_a_recorded_video_is_played(browser: Browser, url: str, tmp_path: Path) -> None:
    SimulatedRun(tmp_path / "run").advance(5)
    browser.open(url)
    browser.wait(f"{text_of('#run-name')} === 'run'")
    assert not browser.value("document.querySelector('#videos').checkVisibility()")
    (tmp_path / "run" / "videos").mkdir()
    recorded = ROOT / "docs" / "results" / "learning" / "pong_ppo.mp4"
    shutil.copy(recorded, tmp_path / "run" / "videos" / "episode_000.mp4")
    browser.wait("Boolean(document.querySelector('video')?.videoWidth)")
    assert browser.value(text_of("figcaption")) == "episode 000"
    assert browser.errors == []


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
    # The time of both sides, with what was not measured.
    bars = "[...document.querySelectorAll('#balance-bars .legend')].map((e) => e.innerText)"
    acting, learning = (" ".join(text.split()) for text in browser.value(bars))
    assert acting == (
        "acting environment60 % batch0 % transfer0 % act25 % wire0 % other0 % waits10 % rest5.0 %"
    )
    assert learning.endswith("rest0 %")
    widths = "[...document.querySelector('.stages').children].map((e) => e.style.width)"
    assert browser.value(widths) == ["60%", "0%", "0%", "25%", "0%", "0%", "10%"]
    # Each change of the files arrives without the page being loaded again.
    for steps in (1_000_001, 1_000_002):
        run.steps = steps
        run.write_status()
        browser.wait(f"{text_of('#progress-text')}.startsWith('{steps:,} of')")
    run.say("hung", "a group <i>hangs</i>", is_problem=True)
    browser.wait(f"{text_of('#events li')}.endsWith('a group <i>hangs</i>')")
    assert browser.errors == []


def test_a_finished_run_says_why_and_one_that_was_killed_gives_no_sign_of_life(
    browser: Browser, url: str, tmp_path: Path
) -> None:
    SimulatedRun(tmp_path / "killed", now=time.time() - 3605).advance(5)
    run = SimulatedRun(tmp_path / "finished")
    for _ in range(10):
        run.advance(5)
    run.finish()
    browser.open(f"{url}?run=killed")
    browser.wait(f"{text_of('#state')}.startsWith('no report for 1:')")
    browser.open(f"{url}?run=finished")
    browser.wait(f"{text_of('#state')} === 'finished'")
    assert browser.value(text_of("#sentence")) == run.reason
    assert browser.value(text_of("#link")) == "not running"
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
    drawn = "document.querySelector('#curve canvas').checkVisibility()"
    assert browser.value(drawn)
    browser.value("document.querySelectorAll('.tick input:checked').forEach((box) => box.click())")
    assert not browser.value(drawn)  # no run is ticked any more
    browser.value("document.querySelector('.tick input').click()")
    browser.wait(drawn)
    assert browser.errors == []


def _sample(rollouts: object, *, alphabet: str = "", end: int = 256, version: int = 9) -> str:
    texts = {"alphabet": alphabet, "end": end, "group": 16, "version": version}
    return json.dumps({**texts, "rollouts": rollouts})


def test_answers_of_a_group_are_shown_beside_each_other(
    browser: Browser, url: str, tmp_path: Path
) -> None:
    run = SimulatedRun(tmp_path / "run", now=ALIVE)
    run.advance(5)
    browser.show(1400, 844, "light")
    browser.open(url)
    browser.wait(f"{text_of('#link')} === 'live'")
    assert browser.value("document.querySelector('#sample').hidden")
    answer = {
        "ids": [1, 2, 3, 0, 4, 5, 6],
        "is_policy": [False] * 4 + [True] * 3,
        "log_mu": [0.0] * 4 + [-0.01, -4.0, -1.0],
        "lags": [3, 3, 3, 3, 1, 2, 2],
        "num_tokens": 7,
    }
    cut = {**answer, "reward": 0, "is_cut": True, "num_tokens": 900}
    named = {"alphabet": "?<i>4", "end": 6}
    (run.folder / "rollouts.json").write_text(
        _sample([{**answer, "reward": 0.5}, cut, {}], **named)
    )
    browser.wait("!document.querySelector('#sample').hidden")
    assert browser.value(text_of("#sample-note")) == "2 of 16, after update 9"
    texts = "[...document.querySelectorAll('#sample-list figure')].map((e) => e.innerText)"
    first, second = (text.split("\n") for text in browser.value(texts))
    assert first[0] == "<i>?45 ⏎" and first[-1] == "reward 0.5 · lag 2"
    assert second[-1] == "reward 0 · lag 2 · cut · first 7 tokens"
    # Only the policy's tokens are coloured, the less likely ones more; both columns are visible.
    titles = (
        "[...document.querySelectorAll('#sample-list figure:first-child b')].map((e) => e.title)"
    )
    assert browser.value(titles)[1] == "token 5, probability 1.8 %, lag 2"
    colours = titles.replace("e.title", "getComputedStyle(e).backgroundColor")
    alphas = [float(each.strip(")").split()[-1]) for each in browser.value(colours)]
    assert 0 < alphas[0] < 0.01 < alphas[2] < alphas[1] < 0.4
    lefts = "[...document.querySelectorAll('#sample-list figure')].map((e) => e.offsetLeft)"
    assert browser.value(f"new Set({lefts}).size") == 2
    # Other tokens are ids; a file that holds anything breaks nothing.
    (run.folder / "rollouts.json").write_text(_sample([{**answer, "reward": 1}]))
    browser.wait(f"{text_of('#sample-list p')}.startsWith('1 2 3 0 4 5 6')")
    (run.folder / "rollouts.json").write_text(_sample(3, version=10))
    browser.wait("document.querySelector('#sample').hidden")
    assert browser.errors == []
