"""Boxes of several targets and sets of classes, as tables and reports show them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.schema import label_of

if TYPE_CHECKING:
    import pandas as pd


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


def joint_of(model: Any, X: Any, y: Any, levels: Sequence[float], targets: Sequence[str]) -> Joint:
    """Predict boxes of several targets or, of a classifier, sets of classes; y has their texts."""
    import pandas as pd

    side, several = "sets" if hasattr(model, "predict_set") else "boxes", len(levels) > 1
    marks = [f"_{level!r}" * several for level in levels]
    sums, inside = dict[str, float](), list[Any]()
    if side == "sets":
        kept, names = model.predict_set(X, list(levels)), [label_of(one) for one in model.classes_]
        columns: dict[str, Any] = {"class": [label_of(one) for one in model.predict(X)]}
        for k, (level, mark) in enumerate(zip(levels, marks, strict=True)):
            sizes = kept[:, :, k].sum(axis=1)
            sets = [[names[c] for c in np.flatnonzero(row)] for row in kept[:, :, k]]
            columns |= {f"set{mark}": [" | ".join(one) for one in sets], f"size{mark}": sizes}
            sums[f"mean size of the sets, alpha = {level:g}"] = float(sizes.sum())
            sums[f"share of sets with one class, alpha = {level:g}"] = float((sizes == 1).sum())
            inside.append([y is not None and y[row] in each for row, each in enumerate(sets)])
    else:
        found = [model.predict_box(X, level) for level in levels]
        columns = {}
        for k, name in enumerate(targets):
            columns[f"point_{name}"] = found[0].point[:, k]
            for boxes, mark in zip(found, marks, strict=True):
                columns[f"lower_{name}{mark}"] = boxes.lower[:, k]
                columns[f"upper_{name}{mark}"] = boxes.upper[:, k]
                width = f"mean width of {name}, alpha = {boxes.alpha:g}"
                sums[width] = float(boxes.width[:, k].sum())
        inside = [np.zeros(len(X)) if y is None else boxes.covers(y) for boxes in found]
    covered = (
        np.array(inside, dtype=np.float64) if y is not None else np.full(np.shape(inside), np.nan)
    )
    alpha: Any = tuple(levels) if several else levels[0]
    return Joint(side, pd.DataFrame(columns), alpha, covered.T if several else covered[0], sums)
