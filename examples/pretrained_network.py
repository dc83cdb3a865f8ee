"""Intervals for your own torch network, already trained on other rows.

The network was trained on one population and is used on another one with 150 labelled rows.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

import lazyknife as lk


def draw(n: int, seed: int, shift: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a population; ``shift`` moves its features and changes how y depends on them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(shift, 1.0, size=(n, 8)).astype(np.float32)
    signal = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + shift * X[:, 3]
    return X, (signal + 0.3 * rng.normal(size=n)).astype(np.float32)


def network() -> nn.Module:
    return nn.Sequential(
        nn.Linear(8, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1)
    )


def save_trained(path: Path, epochs: int = 10) -> None:
    """Train the network in the usual way and save its weights."""
    module, (X, y) = network(), map(torch.from_numpy, draw(3000, seed=0, shift=0.0))
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(X)).split(32):
            optimizer.zero_grad()
            (module(X[batch])[:, 0] - y[batch]).square().mean().backward()
            optimizer.step()
    torch.save(module.state_dict(), path)


def main(folder: Path) -> None:
    torch.manual_seed(0)
    save_trained(folder / "weights.pt")
    trained = network()
    trained.load_state_dict(torch.load(folder / "weights.pt", weights_only=True))

    X, y = draw(150, seed=1, shift=0.5)
    X_new, y_new = draw(1000, seed=2, shift=0.5)
    for title, start in (("random weights", lambda p: network()), ("own weights", trained.eval())):
        model = lk.LazyJackknifeRegressor(network=start, random_state=0).fit(X, y)
        intervals = model.predict_interval(X_new)
        share, width = lk.coverage(y_new, intervals).value, lk.mean_width(intervals)
        print(f"{title}: coverage {share:.3f}, mean width {width:.2f} on {len(y_new)} new rows")
    print(f"\n{model.certificate_}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
