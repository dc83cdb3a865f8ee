"""Which columns are features, target and names of rows, and the rows that they make up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import TableError, counted, quoted, quoted_list
from .read_table import UNNAMED, Formats, Source, rows_of, texts_of, type_columns

if TYPE_CHECKING:
    import pandas as pd

    from ..records import Array

FEWEST_ROWS = 3  # a leave-one-out model with an intercept and a λ of its own


class Roles(NamedTuple):
    """The columns that the user names."""

    targets: tuple[str, ...] = ()
    id_column: str | None = None
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    clusters: str | None = None
    classes: bool = False  # whether the target is a class

    def with_classes(self) -> Roles:
        """The same, where a target that is to be categorical is a class."""
        others = tuple(name for name in self.categorical if name not in self.targets)
        classes = self.classes or len(others) < len(self.categorical)
        return self._replace(categorical=others, classes=classes)


@dataclass(frozen=True)
class Rows:
    """Rows of typed columns, with what was found of their file."""

    X: pd.DataFrame  # features
    y: Any  # (rows,), texts of classes, or (rows, targets); None where rows lack it
    ids: pd.Series | None  # names of the rows, as they are written
    formats: Formats
    notes: list[str]  # what was guessed and done, one sentence each
    quantiles: pd.DataFrame | None = None  # that were asked for
    clusters: pd.Series | None = None  # a label for each row
    classes: bool = False  # whether y is classes

    def __getitem__(self, places: Any) -> Rows:
        """Return some of the rows."""
        y = None if self.y is None else self.y[places]
        ids = None if self.ids is None else self.ids.iloc[places]
        quantiles = None if self.quantiles is None else self.quantiles.iloc[places]
        return replace(self, X=self.X.iloc[places], y=y, ids=ids, quantiles=quantiles)


def named(given: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Return names of columns of which several may stand in one text, each once."""
    parts = [[name] if name in columns else name.split(",") for name in given]
    return tuple(dict.fromkeys(name for part in parts for name in part))


def check_known(name: str, columns: Sequence[str], file: str) -> None:
    """Refuse a name that no column has, and suggest the closest."""
    if name not in columns:
        close = closest(name, columns)
        hint = f"did you mean {quoted(close)}?" if close else _listed(columns)
        raise TableError(f"{file}: no column {quoted(name)}: {hint}")


def check_has(names: Iterable[str], columns: Sequence[str], file: str, way: str = "") -> None:
    """Refuse rows that lack columns, which other rows have."""
    missing = [name for name in names if name not in columns]
    if missing:
        close = closest(missing[0], columns)
        hint = f"rename {quoted(close)}" if close else _listed(columns)
        raise TableError(f"{file}: no column {quoted_list(missing)}: {hint}{way}")


def closest(name: str, columns: Sequence[str]) -> str | None:
    """The column whose name is most like another name, if any is."""
    folded = {column.casefold(): column for column in columns}
    found = get_close_matches(name.strip().casefold(), folded, n=1)
    return folded[found[0]] if found else None


def _listed(columns: Sequence[str]) -> str:
    return f"the columns are {quoted_list(columns)}"


def check_names(train: Source, new: Source | None, roles: Roles) -> None:
    """Refuse names that no column has, and columns in two roles."""
    last, ids = new or train, [roles.id_column] if roles.id_column else []
    for flag, names, columns in (
        ("--target", roles.targets, train.columns),
        ("--drop", roles.drop, (*train.columns, *last.columns)),
        ("--categorical", roles.categorical, train.columns),
        ("--clusters", [roles.clusters] if roles.clusters else [], train.columns),
        ("--id", ids, last.columns),
    ):
        for name in names:
            check_known(name, columns, last.name if flag == "--id" else train.name)
            twice = flag != "--target" and name in roles.targets
            if twice or (flag == "--categorical" and name in (*roles.drop, *ids)):
                message = "has another role: remove it from"
                raise TableError(f"{train.name}: column {quoted(name)} {message} {flag}")


def read_training(
    train: Source, new: Source | None, roles: Roles, formats: Formats
) -> tuple[Rows, Rows | None]:
    """Read training rows, and new rows; types of columns are decided on both together."""
    import pandas as pd

    sources, targets = [train] if new is None else [train, new], list(roles.targets)
    whole = [rows_of(source) for source in sources]
    others = (*roles.drop, roles.id_column, roles.clusters)  # that are no features
    used = [name for name in train.columns if name not in others]
    frames = [frame[[name for name in used if name in frame]] for frame in whole]
    frames[1:] = [frame.drop(columns=targets, errors="ignore") for frame in frames[1:]]
    texts = (*roles.categorical, *(roles.targets if roles.classes else ()))
    typed = type_columns(frames, [s.name for s in sources], formats, texts)
    notes = [note for source in sources for note in source.notes] + typed.notes
    rows, clusters = typed.frames[0], None
    if roles.clusters:
        labels = texts_of(whole[0], roles.clusters, formats)
        clusters = whole[0][roles.clusters] if labels is None else labels
    present = rows[targets].notna().all(axis=1)
    if not present.all() and present.any():
        lacking = counted(int((~present).sum()), "row")
        about = "the certificate is about rows that have a target"
        notes.append(f"{train.name}: {lacking} without a target left out; {about}.")
        rows = rows[present].reset_index(drop=True)
        clusters = None if clusters is None else clusters[present]
    roles = roles._replace(classes=roles.classes or looks_like_classes(rows[targets]))
    if roles.classes and len(targets) > 1:
        raise TableError("sets of classes have one target: predict each class on its own")
    y = targets_of(rows[targets], roles.classes, train.name)
    if roles.classes:
        shown = quoted_list(sorted(set(y)), most=5)
        notes.append(f"{targets[0]}: sets of classes are predicted, of {shown}.")
    if len(y) < FEWEST_ROWS:
        raise TableError(f"{train.name}: {len(y)} rows are too few: give at least {FEWEST_ROWS}")
    features, id_column = features_of(rows, roles, notes)
    unlike = f"{sources[-1].name}, unlike {train.name}"
    check_has(features, sources[-1].columns, unlike, ", or --drop it")
    together = pd.concat([rows[features], *(frame[features] for frame in typed.frames[1:])])
    for name, values in together.items():
        if str(values.dtype) == "str":
            notes.append(f"{name}: {counted(values.nunique(), 'category', 'categories')}.")
        if values.isna().any():
            notes.append(f"{name}: {counted(int(values.isna().sum()), 'missing value')}.")
    ids = whole[0][id_column] if id_column in train.columns else None
    training = Rows(rows[features], y, ids, typed.formats, notes, None, clusters, roles.classes)
    if new is None:
        return training, None
    known = (*train.columns, *others)
    ignored = [name for name in new.columns if name not in known]
    if ignored:
        notes.append(f"{new.name}: {quoted_list(ignored)} ignored: {train.name} has none.")
    y_new = new_targets(whole[1], roles, new.name, typed.formats, notes)
    ids = whole[1][id_column] if id_column in new.columns else None
    return training, Rows(typed.frames[1][features], y_new, ids, typed.formats, notes)


def read_batches(
    new: Source, features: Sequence[str], texts: Sequence[str], roles: Roles, formats: Formats
) -> Iterator[Rows]:
    """Yield new rows for a model, some at a time, with its features; columns ``texts`` are text.

    What a batch shows of how they are written is known to later ones.
    """
    for frame in new.batches():
        typed = type_columns([frame[list(features)]], [new.name], formats, texts)
        formats, notes = typed.formats, typed.notes
        y = new_targets(frame, roles, new.name, formats, notes)
        ids = None if roles.id_column is None else frame[roles.id_column]
        yield Rows(typed.frames[0], y, ids, formats, notes)


def features_of(
    train: pd.DataFrame, roles: Roles, notes: list[str]
) -> tuple[list[str], str | None]:
    """Return the columns of training rows that are features, and that of names of rows.

    Columns without a name or values are left out, and texts most of which occur once: names of rows
    or remarks, of which no model can learn. Notes say so.
    """
    from ..data.schema import FEW_ROWS, MOST_SINGLE

    names, id_column = [], roles.id_column
    for name in train.columns.drop(list(roles.targets)):
        values, why = train[name].dropna(), ""
        is_text = str(values.dtype) == "str" and name not in roles.categorical
        single = int((values.value_counts() == 1).sum()) if is_text else 0
        if name.startswith(UNNAMED) or not len(values):
            why = "has no values" if not len(values) else "has no name"
        elif len(values) > FEW_ROWS and single > MOST_SINGLE * len(values):
            why, id_column = "names rows", id_column or name
        elif single == len(values) == 1 < len(train):
            why = "has a single value"
        if why:
            notes.append(f"column {quoted(name)} {why}: it is not a feature (--categorical).")
        else:
            names.append(name)
    if not names:
        raise TableError("no features are left: drop fewer columns")
    return names, id_column


def looks_like_classes(frame: pd.DataFrame) -> bool:
    """Whether there is one target, of texts that occur twice on average."""
    first, single = frame.iloc[:, 0].dropna(), frame.shape[1] == 1
    return single and str(first.dtype) == "str" and 2 * first.nunique() <= len(first)


def targets_of(frame: pd.DataFrame, classes: bool, file: str) -> Array:
    """Return targets, which must be finite numbers, or classes: (rows,), or (rows, targets)."""
    import numpy as np

    if classes:
        from ..data.schema import label_of

        texts: Array = frame.iloc[:, 0].map(label_of, na_action="ignore").to_numpy(dtype=object)
        return texts
    found = [_numbers(frame[name], file) for name in frame]
    return found[0] if len(found) == 1 else np.stack(found, axis=1)


def _numbers(values: pd.Series, file: str) -> Array:
    import numpy as np
    import pandas as pd

    what = f"{file}: column {quoted(values.name)} is the target and"
    if not pd.api.types.is_numeric_dtype(values.dtype) and values.notna().any():
        first = quoted(values.dropna().iloc[0])
        raise TableError(f"{what} contains other values than numbers, such as {first}")
    numbers: Array = values.to_numpy(dtype=np.float64, na_value=np.nan)
    wrong = ~np.isfinite(numbers)
    if wrong.any():
        which = "infinite" if np.isinf(numbers[wrong.argmax()]) else "missing"
        raise TableError(f"{what} has {which} values, the first in row {wrong.argmax() + 1}")
    return numbers


def new_targets(
    frame: pd.DataFrame, roles: Roles, file: str, formats: Formats, notes: list[str]
) -> Array | None:
    """Return the new rows' targets if they have them; if some lack one, a note says so."""
    targets = list(roles.targets)
    if not targets or not set(targets) <= set(frame):
        return None
    texts = targets if roles.classes else ()
    try:
        typed = type_columns([frame[targets]], [file], formats, texts).frames[0]
        if (gaps := typed.isna().any(axis=1)).any() and roles.classes:
            first = int(gaps.to_numpy().argmax()) + 1
            raise TableError(f"{file}: column {quoted(targets[0])} has no class in row {first}")
        return targets_of(typed, roles.classes, file)
    except TableError as error:
        notes.append(f"The new rows are not scored. {error}.")
        return None
