"""What a fit will take, from measured rates."""

from __future__ import annotations

import logging

import pytest

from lazyknife.compute import Machine
from lazyknife.errors import bytes_in_words, time_in_words
from lazyknife.estimators.cost import LONG, Cost, Rates, Shape, measured

SHAPE = Shape(
    rows=200_000, features=50, networks=8, landmarks=1000, few=300, many=1000, amount=2000
)


def test_rates_are_measured() -> None:
    found = measured(Machine())
    assert found.products > found.maps > 1e6


def test_cost_grows_with_rows_landmarks_and_slower_machines() -> None:
    rates, machine = Rates(5e10, 1e9), Machine(budget=2**33)
    cost = SHAPE.cost(rates, machine)
    assert SHAPE._replace(rows=400_000).cost(rates, machine).seconds > 1.2 * cost.seconds
    assert SHAPE._replace(landmarks=2000).cost(rates, machine).seconds > 1.5 * cost.seconds
    assert SHAPE.cost(Rates(5e9, 1e8), machine).seconds == pytest.approx(10 * cost.seconds)
    assert SHAPE._replace(amount=0).cost(rates, machine).seconds < cost.seconds
    # 200,000 × 1,000 features are kept where half of the budget holds them.
    assert cost.memory > 1.6e9 > SHAPE.cost(rates, Machine(budget=2**30)).memory


@pytest.mark.parametrize(("seconds", "level"), [(LONG / 2, "INFO"), (2 * LONG, "WARNING")])
def test_what_is_long_is_said_aloud(
    seconds: float, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="lazyknife"):
        Cost(seconds, 2e9).announce("9 rows")
    (record,) = caplog.records
    assert record.levelname == level
    assert record.getMessage().endswith("2 GB of memory")


def test_sizes_in_words() -> None:
    bytes_of = [bytes_in_words(count) for count in (3e5, 999e5, 2.34e9, 3.2e13)]
    assert bytes_of == ["0 MB", "100 MB", "2.3 GB", "32 TB"]
    times = [time_in_words(seconds) for seconds in (4.42, 119, 150, 86400)]
    assert times == ["4.4 seconds", "120 seconds", "2.5 minutes", "24 hours"]
