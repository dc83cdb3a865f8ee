"""Use the library through skpro's interface, whose metrics and pipelines then take it.

pip install skpro; python examples/skpro_regressor.py
"""

import pandas as pd
from sklearn.datasets import load_diabetes
from skpro.metrics import EmpiricalCoverage, PinballLoss
from skpro.regression.base import BaseProbaRegressor

from lazyknife import LazyJackknifeRegressor


class Lazyknife(BaseProbaRegressor):
    """The default, with skpro's methods; a search over its settings loses the certificate."""

    def __init__(self, alpha=0.1, random_state=None):
        self.alpha, self.random_state = alpha, random_state
        super().__init__()

    def _fit(self, X, y):
        self.target_ = y.columns
        model = LazyJackknifeRegressor(alpha=self.alpha, random_state=self.random_state)
        self.model_ = model.fit(X, y.iloc[:, 0])
        return self

    def _predict(self, X):
        return pd.DataFrame(self.model_.predict(X), X.index, self.target_)

    def _predict_interval(self, X, coverage):
        found = {level: self.model_.predict_interval(X, alpha=1 - level) for level in coverage}
        names = pd.MultiIndex.from_product([self.target_, coverage, ["lower", "upper"]])
        ends = {name: getattr(found[name[1]], name[2]) for name in names}
        return pd.DataFrame(ends, X.index)

    def _predict_quantiles(self, X, alpha):
        names = pd.MultiIndex.from_product([self.target_, alpha])
        return pd.DataFrame(self.model_.predict_distribution(X).quantile(alpha), X.index, names)


def main():
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    model = Lazyknife(random_state=0).fit(X[:200], y[:200])
    X, y = X[200:], y[200:].to_frame()
    print(EmpiricalCoverage()(y, model.predict_interval(X, coverage=0.9)))
    print(PinballLoss()(y, model.predict_quantiles(X, alpha=[0.1, 0.5, 0.9])))
    print(model.model_.certificate_)


if __name__ == "__main__":
    main()
