"""Intervals for the rows of a CSV file: read, fit, predict, save a table.

The script writes a small file to a temporary folder; replace it by your own. The command
``lazyknife predict`` does the same from a shell, and also encodes text columns and dates.
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import lazyknife as lk


def write_example(path: Path) -> None:
    """120 houses; the price of the last 20 is unknown."""
    rng = np.random.default_rng(0)
    houses = pd.DataFrame({"area": rng.uniform(40, 200, 120), "age": rng.integers(0, 80, 120)})
    houses["rooms"] = (houses["area"] / 30).round() + rng.integers(0, 2, 120)
    price = 3 * houses["area"] - houses["age"] + 20 * rng.normal(size=120)
    houses["price"] = price.where(houses.index < 100)
    houses.to_csv(path, index=False)


def main(folder: Path) -> None:
    write_example(folder / "houses.csv")
    houses = pd.read_csv(folder / "houses.csv")
    known = houses["price"].notna()
    features = houses.drop(columns="price")

    model = lk.LazyJackknifeRegressor(alpha=0.1, random_state=0)
    model.fit(features[known], houses["price"][known])
    intervals = model.predict_interval(features[~known])

    # Row labels of the frame are kept, so the intervals can be joined to their rows.
    table = features[~known].join(intervals.to_frame())
    table.to_csv(folder / "intervals.csv", index_label="row")
    print(table.head().round(1).to_string())
    print(f"\n{model.certificate_}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
