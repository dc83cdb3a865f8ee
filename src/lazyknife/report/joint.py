"""Boxes of several targets and sets of classes, as tables and reports show them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.schema import label_of

if TYPE_CHECKING:
    import pandas as pd

    from ..estimators.classifier import LazyJackknifeClassifier
    from ..estimators.lazy import LazyJackknifeRegressor


@dataclass(frozen=True)
class Joint:
    """Boxes or sets of some rows, at one level or several."""

    side: str  # "boxes" or "sets", where intervals have a side
    frame: pd.DataFrame  # columns of an output
    alpha: float | tuple[float, ...]
    inside: Any  # whether they contain the true values, (rows,) or (rows, levels); NaN: not known
    sums: dict[str, float]  # over the rows, of their sizes

    @staticmethod
    def concat(parts: Iterable[Joint]) -> Joint:
        import pandas as pd

        first, second = parts
        frame = pd.concat([first.frame, second.frame], ignore_index=True)
        return replace(first, frame=frame, inside=np.concatenate([first.inside, second.inside]))

    def levels(self) -> list[Joint]:
        """Those of each level."""
        if not isinstance(self.alpha, tuple):
            return [self]
        pairs = zip(self.alpha, self.inside.T, strict=True)
        return [replace(self, alpha=alpha, inside=inside) for alpha, inside in pairs]

    def covers(self, _: Any) -> Any:
        return self.inside

    def to_frame(self) -> pd.DataFrame:
        return self.frame

    def __len__(self) -> int:
        return len(self.frame)

    def __getitem__(self, places: Any) -> Joint:
        return replace(self, frame=self.frame.iloc[places], inside=self.inside[places])


def boxes_of(
    model: LazyJackknifeRegressor, X: Any, y: Any, levels: Sequence[float], targets: Sequence[str]
) -> Joint:
    """Predict boxes, one interval for each target that hold together."""
    found = [model.predict_box(X, level) for level in levels]
    columns, sums = {}, {}
    for k, name in enumerate(targets):
        columns[f"point_{name}"] = found[0].point[:, k]
        for boxes, level in zip(found, levels, strict=True):
            for end in ("lower", "upper"):
                columns[f"{end}_{name}{_mark(level, levels)}"] = getattr(boxes, end)[:, k]
            width = float(boxes.width[:, k].sum())
            sums[f"mean width of {name}, alpha = {level:g}"] = width
    inside = [len(X) * [np.nan] if y is None else boxes.covers(y) for boxes in found]
    return _joint("boxes", columns, levels, inside, sums)


def sets_of(model: LazyJackknifeClassifier, X: Any, y: Any, levels: Sequence[float]) -> Joint:
    """Predict sets of classes; ``y`` are texts."""
    kept, names = model.predict_set(X, list(levels)), [label_of(one) for one in model.classes_]
    columns: dict[str, Any] = {"class": [label_of(one) for one in model.predict(X)]}
    sums, inside = {}, []
    for k, level in enumerate(levels):
        sizes = kept[:, :, k].sum(axis=1)
        sets = [[names[c] for c in np.flatnonzero(row)] for row in kept[:, :, k]]
        columns[f"set{_mark(level, levels)}"] = [" | ".join(one) for one in sets]
        columns[f"size{_mark(level, levels)}"] = sizes
        sums[f"mean size of the sets, alpha = {level:g}"] = float(sizes.sum())
        sums[f"share of sets with one class, alpha = {level:g}"] = float((sizes == 1).sum())
        unknown = y is None
        inside.append([np.nan if unknown else y[row] in each for row, each in enumerate(sets)])
    return _joint("sets", columns, levels, inside, sums)


def _mark(level: float, levels: Sequence[float]) -> str:
    """The end of a column's name that tells levels apart."""
    return f"_{level!r}" if len(levels) > 1 else ""


def _joint(
    side: str, columns: dict[str, Any], levels: Sequence[float], inside: Any, sums: dict[str, float]
) -> Joint:
    import pandas as pd

    several = len(levels) > 1
    covered = np.array(inside, dtype=np.float64)
    alpha = tuple(levels) if several else levels[0]
    return Joint(side, pd.DataFrame(columns), alpha, covered.T if several else covered[0], sums)
