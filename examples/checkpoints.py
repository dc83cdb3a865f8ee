"""Put certified intervals on a saved torch network, and on a network trained by skorch.

Both are trained on one simulated population and meet another with 150 labelled rows.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

import lazyknife as lk

FEATURES, LABELLED = 8, 150


def simulate(n: int, seed: int, shift: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a population; ``shift`` moves its features and changes how y follows them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(shift, 1.0, size=(n, FEATURES)).astype(np.float32)
    signal = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + shift * X[:, 3]
    return X, (signal + 0.3 * rng.normal(size=n)).astype(np.float32)


def network() -> nn.Module:
    """The architecture, which a checkpoint of weights does not carry."""
    return nn.Sequential(
        nn.Linear(FEATURES, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1)
    )


def train(module: nn.Module, X: np.ndarray, y: np.ndarray, epochs: int) -> nn.Module:
    """Ordinary training, elsewhere and long ago."""
    inputs, target = torch.from_numpy(X), torch.from_numpy(y)
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(X)).split(32):
            optimizer.zero_grad()
            (module(inputs[batch])[:, 0] - target[batch]).square().mean().backward()
            optimizer.step()
    return module


def from_checkpoint(path: Path) -> nn.Module:
    """Read the weights into a network of the same architecture; ``eval`` stills its dropout."""
    module = network()
    module.load_state_dict(torch.load(path, weights_only=True))
    return module.eval()


def from_skorch(X: np.ndarray, y: np.ndarray, epochs: int) -> nn.Module:
    """Train with skorch; its ``module_`` is the torch network."""
    from skorch import NeuralNetRegressor

    net = NeuralNetRegressor(
        network, max_epochs=epochs, batch_size=32, lr=1e-3, optimizer=torch.optim.Adam, verbose=0
    )
    net.fit(X, y[:, None])
    return net.module_


def adapt(module: nn.Module, X: np.ndarray, y: np.ndarray) -> lk.LazyJackknifeRegressor:
    """Intervals for the new population; the module is copied, and keeps its weights."""
    return lk.LazyJackknifeRegressor(network=module, base=lk.Public(), random_state=0).fit(X, y)


def show(title: str, module: nn.Module) -> None:
    X, y = simulate(LABELLED, seed=1, shift=0.5)
    X_new, y_new = simulate(1000, seed=2, shift=0.5)
    model = adapt(module, X, y)
    intervals = model.predict_interval(X_new)
    print(f"{title}\n{'-' * len(title)}")
    for k in range(3):
        ends = f"[{intervals.lower[k]:6.2f}, {intervals.upper[k]:6.2f}]"
        print(f"{intervals.point[k]:6.2f} in {ends}; true {y_new[k]:6.2f}")
    held = lk.coverage(y_new, intervals).value
    print(f"coverage {held:.3f}, mean width {lk.mean_width(intervals):.2f} on {len(y_new)} rows")
    print(f"{model.certificate_}\n")


def main(epochs: int = 30) -> None:
    torch.manual_seed(0)
    X, y = simulate(3000, seed=0, shift=0.0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.pt"
        torch.save(train(network(), X, y, epochs).state_dict(), path)
        show("A checkpoint", from_checkpoint(path))
    try:
        module = from_skorch(X, y, epochs)
    except ImportError:
        print("The second part needs skorch: pip install skorch")
    else:
        show("A network trained by skorch", module)


if __name__ == "__main__":
    main()
