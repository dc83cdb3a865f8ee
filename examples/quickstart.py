"""Prediction intervals with a coverage guarantee, on scikit-learn's diabetes data.

``python examples/quickstart.py [FOLDER]`` writes intervals.csv and intervals.png to the folder.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_diabetes

import lazyknife as lk
from lazyknife.plots import plot_intervals, save_figure, style


def main(folder: Path) -> None:
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    order = np.random.default_rng(0).permutation(len(y))
    train, new = order[:200], order[200:]

    # Every leave-one-out model chooses its network and scales the features by its own rows.
    model = lk.LazyJackknifeRegressor(alpha=0.1, random_state=0)
    model.fit(X.iloc[train], y.iloc[train])
    intervals = model.predict_interval(X.iloc[new])

    print(model.certificate_, "\n")
    print(model.choice_, "\n")
    table = intervals.to_frame()
    print(table.head().round(1).to_string(), "\n")
    truth = y.iloc[new].to_numpy()
    share = lk.coverage(truth, intervals).value
    print(f"Coverage on {len(new)} new rows: {share:.3f}")
    print(f"Mean width: {lk.mean_width(intervals):.0f} (standard deviation of y: {y.std():.0f})")

    folder.mkdir(parents=True, exist_ok=True)
    table.to_csv(folder / "intervals.csv")
    with style():
        figure = Figure(figsize=(6, 3.4), layout="constrained")
        plot_intervals(intervals, truth, ax=figure.subplots())
    save_figure(figure, folder / "intervals.png")
    print(f"Wrote intervals.csv and intervals.png to {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/quickstart"))
