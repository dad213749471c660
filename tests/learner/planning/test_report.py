"""What a plan says: prices where they are known, and numbers for programs."""

import dataclasses
import json

import pytest

from learner.planning import catalog
from learner.planning.demand import Machines
from learner.planning.plan import Sizing
from learner.planning.prediction import predict
from learner.planning.programs import Programs
from learner.planning.report import Plan, Price, price_of, rows, to_json
from seedrl.errors import ConfigError
from tests.learner.planning.test_plan import BUSY, DEMAND

LEARNING = dataclasses.replace(DEMAND, steps_per_update=100.0)
PLAN = Plan(
    config="atari_r2d2",
    demand=LEARNING,
    costs=BUSY,
    sizing=Sizing(2, predict(BUSY, LEARNING, Machines(devices=1))),
    programs=Programs(2**30, 2**29, 2**28, 1e6, 1e9),
    accelerator="1 x h200",
    devices=1,
    device_bytes=100 * 2**30,
    price=Price(8.0, None, ("core: no price",)),
    notes=("a note",),
)


def test_prices_are_bundled_or_given() -> None:
    known = catalog.price("h100")
    core = catalog.price(catalog.CORE)
    assert known is not None and core is not None
    found = price_of("h100", 8, 100, device_usd=None, core_usd=None)
    assert found.devices == pytest.approx(8 * known.usd_per_hour)
    assert found.cores == pytest.approx(100 * core.usd_per_hour)
    assert [core.date in found.notes[0], known.date in found.notes[1]] == [True, True]
    given = price_of("h100", 8, 100, device_usd=2.0, core_usd=0.1)
    assert given == (16.0, 10.0, ())


def test_a_learner_without_accelerator_has_cores() -> None:
    found = price_of(catalog.CORE, 8, 100, device_usd=None, core_usd=0.1)
    assert (found.devices, found.cores) == (pytest.approx(0.8), pytest.approx(10.0))


def test_what_is_not_there_has_no_price() -> None:
    with pytest.raises(ConfigError, match="--device-usd-per-hour: expected with an accelerator"):
        price_of(catalog.CORE, 8, 100, device_usd=1.0, core_usd=0.1)


def test_no_price_is_invented() -> None:
    found = price_of("tpu-v5p", 4, 0, device_usd=None, core_usd=0.1)
    assert found.devices is None
    assert found.notes == ("tpu-v5p: no price is bundled; --device-usd-per-hour takes one",)


def test_every_price_and_device_says_where_it_is_from() -> None:
    facts = json.loads(catalog._FILE.read_text())
    assert all(each["source"] for kind in facts.values() for each in kind.values())
    assert all(each["date"].startswith("20") for each in facts["prices"].values())


def test_three_quarters_of_a_gpu_may_be_used() -> None:
    assert catalog.usable_bytes("h100") == pytest.approx(60e9)
    assert catalog.usable_bytes("tpu-v6e") == pytest.approx(32e9)
    assert catalog.usable_bytes("cpu") == catalog.usable_bytes("gpu") == 0.0


def test_the_table_has_totals_and_parts() -> None:
    found = dict(rows(PLAN))
    assert found["learner hosts"] == "2 with 1 x h200"
    assert found["memory of each device"] == "1.75 GiB of 100 that it has"
    assert found["an hour"] == "$8.00, without env-server cores"
    updates = PLAN.sizing.steps_per_second / 100
    assert found["updates/s"] == f"{updates:.2f}" != "0.00"


def test_programs_get_plain_values() -> None:
    found = json.loads(json.dumps(to_json(PLAN), allow_nan=False))
    assert found["hosts"] == 2 and found["binding"] == "learner's interpreter"
    assert found["demand"]["steps_per_update"] == 100.0
    assert found["usd_per_hour"] == {"devices": 8.0, "cores": None, "notes": ["core: no price"]}
