"""Tables with many categories of one row: the encoding keeps the certificate, a mutant does not.

40 % of the rows have a category of their own, and their y varies little. A run passes if its mean
coverage over the trials is at least the certificate less 3 standard errors of that mean: where the
certificate is exact, the false-alarm rate is 0.14 % a construction (and 0 on these fixed seeds).
The mutant, which leaves out new rows with a category that the training rows lack, selects the rows
whose y varies more: its coverage is 4 to 6 standard errors below the certificate.
"""

import numpy as np
import pandas as pd
import pytest

import lazyknife as lk
from bets import standard_errors_above

TRIALS, N, NEW = 80, 40, 40
NETWORKS = {"finite": lk.mlp((4,)), "wide": lk.wide("laplace", 1.0)}


def tables(seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """N training rows and NEW new ones, all of them independent draws."""
    rng = np.random.default_rng(seed)
    rows = N + NEW
    single = rng.random(rows) < 0.4
    names = np.where(single, [f"row {i}" for i in range(rows)], rng.choice(["u", "v"], rows))
    y = np.where(single, 0.05, 1.0) * rng.normal(size=rows)
    frame = pd.DataFrame({"x": rng.normal(size=rows), "c": names, "y": y})
    return frame[:N], frame[N:]


def excess(construction: str, network: str, mutant: bool) -> float:
    """Mean coverage less the certificate, in standard errors of the mean."""
    found = []
    for seed in range(TRIALS):
        train, new = tables(seed)
        if mutant:
            new = new[new["c"].isin(train["c"])]
        X, X_new = (part.drop(columns="y") for part in (train, new))
        encoding = lk.TableEncoder(categorical=["c"])
        model = lk.LazyJackknifeRegressor(
            NETWORKS[network],
            ridge=30.0 if network == "finite" else "auto",
            construction=construction,
            widths="leverage" if construction == "full" else "constant",
            encoding=encoding,
            target_transform=None,  # models on several scales are too wide to show the mutant
            random_state=seed,
        )
        pool = X_new if network == "finite" else None
        intervals = model.fit(X, train["y"], X_pool=pool).predict_interval(X_new)
        found.append(intervals.covers(new["y"]).mean() - model.certificate_.coverage)
    return standard_errors_above(found, 0.0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::lazyknife.shift.ShiftWarning")
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("construction", ["full", "minmax"])
@pytest.mark.parametrize("mutant", [False, True])
def test_categories_of_one_row_keep_the_certificate_unless_they_are_left_out(
    mutant, construction, network
):
    assert (excess(construction, network, mutant) < -3) == mutant
