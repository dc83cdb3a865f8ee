"""Sets of classes with a guarantee: a ridge for each class, whose models all choose together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .. import sentences
from ..certificate.certify import Worded
from ..choosing.likelihood import of_one_scale
from ..choosing.record import ChosenSettings
from ..choosing.rows import MANY, Leaving
from ..compute import Device
from ..data.checks import check_choice
from ..data.encoder import TableEncoder
from ..data.rows import plain, to_tensor
from ..data.scaling import Source
from ..data.targets import Target, find_target
from ..intervals import kappa
from ..intervals.classes import SETS, ClassModels
from ..memory import noticing_memory
from ..networks import Network, wide
from ..records import INDEPENDENT, Array
from .base import Levels, RowsMixin, Values
from .fit_full_classes import FullClasses, full_classes
from .fit_input import Fitted, RandomState, prepare
from .fit_outputs import check_networks, leaving_of, outputs_step
from .labels import is_missing
from .lazy import LazyJackknifeRegressor
from .questions import Asked


@dataclass(eq=False, repr=False)
class LazyJackknifeClassifier(ClassifierMixin, RowsMixin):  # type: ignore[misc]
    """Certified sets of classes for a table.

    A set contains the true class with a probability that the certificate states, for any number of
    classes. Each class has a ridge on an infinitely wide network, whose target is 1 at its rows and
    else 0; all leave-one-out models of all classes follow in closed form. A class is in the set if
    the models without each row do not put it farther behind the others than enough of the training
    rows' own classes are put by the models that have not seen these rows.

    As in ``LazyJackknifeRegressor``, every model chooses on its own rows how to scale features, its
    network, the weights of features and λ; with more than 1,000 rows a random part of them, which
    is never left out, chooses for all.

    Parameters
    ----------
    network
        An infinitely wide network such as ``wide("laplace")``, a ``torch.nn.Module`` or a callable
        such as ``mlp((64,))``, of which the gradients of the sum of outputs are the features, or a
        list of such networks to choose from; None: ``lazyknife.networks.CANDIDATES``.
    ridge
        λ > 0, or ``"auto"``: chosen.
    construction
        ``"plus"`` certifies 1 − 2·alpha, ``"minmax"`` 1 − alpha with larger sets; ``"full"``
        certifies 1 − alpha with small ones, but searches again for new rows.
    fit_intercept
        Whether to fit an unpenalised intercept.
    feature_weights
        ``"auto"``: a weight for each feature is searched if there are at most 64; or None.
    scaling
        ``"auto"``: models scale features by their own rows; ``"symlog"`` (fixed), or None.
    encoding
        A ``TableEncoder`` with settings for the columns of frames; None: its defaults.
    alpha
        Level: sets aim at a coverage of 1 − alpha.
    device, memory_budget, random_state, verbose
        As for ``LazyJackknifeRegressor``.

    Attributes
    ----------
    classes_
        The labels, sorted, shape (classes,).
    certificate_
        The coverage guarantee; print it.
    choice_
        What the models chose; print it.
    loo_
        The leave-one-out models of all classes.

    """

    network: Network | wide | Sequence[Network | wide] | None = None
    ridge: float | Literal["auto"] = "auto"
    construction: Literal["plus", "minmax", "full"] = "plus"
    fit_intercept: bool = True
    feature_weights: Literal["auto"] | None = "auto"
    scaling: Literal["auto", "symlog"] | None = "auto"
    encoding: TableEncoder | None = None
    alpha: float = 0.1
    device: Device = "auto"
    memory_budget: int | None = None
    random_state: RandomState = None
    verbose: bool = False
    # What a fit makes, for type checkers.
    classes_: NDArray[Any] = field(init=False)
    choice_: ChosenSettings = field(init=False)

    _when_few = "every set contains all classes"

    def _lazy(self) -> LazyJackknifeRegressor:
        """A regressor with the same settings, which knows what they mean."""
        own = self.get_params(deep=False)
        own["widths"] = None if self.construction == "full" else "constant"
        return LazyJackknifeRegressor(**own, target_transform=None)

    def _check_settings(self) -> None:
        check_choice("construction", self.construction, [*SETS, "full"])
        check_networks(self.network, 0, finite=True)
        if self.scaling is not None:
            check_choice("scaling", self.scaling, ["auto", "symlog"])
        self._lazy()._check_settings()

    def _target(self) -> Target:
        return find_target(None, None)

    def _takes_categories(self, rows: Values) -> bool:
        return self._lazy()._takes_categories(rows)

    def _scaling_for(self, rows: Values, source: Source) -> Any:
        return self._lazy()._scaling_for(rows, source)

    def _rows_left(self, n: int) -> int:
        return leaving_of(n).rows

    def fit(self, X: Any, y: Any) -> Self:
        """Fit all leave-one-out models of all classes.

        Parameters
        ----------
        X
            Training rows: an array, tensor or frame of shape (n, features).
        y
            Labels of any kind, shape (n,).

        """
        return self._fit_checked(X, y)

    @noticing_memory
    def _fit_checked(self, X: Any, y: Any) -> Self:
        self._check_settings()
        classes, codes = self._labels(y)
        given = prepare(self, X, codes, None, None)
        flat, shape = given._replace(X=given.X.flatten(1)), tuple(given.X.shape[1:])
        step = outputs_step(self._lazy(), flat, "constant", of_one_scale, shape)
        Y, leaving = torch.eye(len(classes)).double()[codes], leaving_of(len(codes))
        full, many = self.construction == "full", len(codes) > MANY
        if full and many and not all(each.weighted for each in step.candidates):
            raise ValueError(
                "construction='full' does not support networks of your own with more than "
                f"{MANY:,} rows: use construction='plus', network=None, or fewer rows"
            )
        models: ClassModels | FullClasses
        if full and not many:
            models, choice = full_classes(step.full(), flat.X, Y)
            leaving = Leaving(len(codes))
        else:
            solved = step.outputs(flat.X, Y)
            left, choice = torch.from_numpy(codes)[solved.left_out], solved.choice
            models = ClassModels(solved.columns, left)
        terms = INDEPENDENT, models, leaving, self.construction
        certifier = self._lazy()._certifier(flat, *terms, step.scaled)
        certify = Worded(certifier, sentences.EXPECT_CLASSES, (sentences.KNOWN_CLASSES,))
        found = {"classes_": classes, "choice_": choice}
        return self._set_fitted(X, given, Fitted(models, certify, found))

    def _labels(self, y: Any) -> tuple[NDArray[Any], NDArray[np.intp]]:
        """The classes, and which of them each row has."""
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        labels = column_or_1d(np.asarray(plain(y, "y")), warn=True)
        if any(is_missing(label) for label in labels.tolist()):
            raise ValueError("y has missing labels (None or NaN): leave such rows out")
        check_classification_targets(labels)
        try:
            classes, codes = np.unique(labels, return_inverse=True)
        except TypeError as error:
            raise ValueError(f"y has labels of several types ({error}): convert them") from None
        if len(classes) < 2:
            raise ValueError(
                f"y has one class, {classes.tolist()}: give rows of at least 2 classes"
            )
        return classes, codes

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely class of each row, shape (m,)."""
        places = self._values(X).argmax(axis=1)
        found: NDArray[Any] = self.classes_[places]
        return found

    def predict_proba(self, X: Any) -> Array:
        """Shares of the classes in the full-data model's values, shape (m, classes).

        A by-product, not calibrated: values below 0 count as 0. The guarantee is about
        ``predict_set``.
        """
        values = self._values(X).clip(min=1e-12)
        found: Array = values / values.sum(axis=1, keepdims=True)
        return found

    def predict_set(self, X: Any, alpha: Levels = None) -> NDArray[np.bool_]:
        """Sets of classes that contain the true class with the certified probability.

        Parameters
        ----------
        X
            Rows to predict.
        alpha
            The level, or a list of levels; None is the estimator's own. Nothing is fitted again.

        Returns
        -------
        Whether each class of ``classes_`` is in the set of a row, shape (m, classes); for a list of
        levels, (m, classes, levels). The class that ``predict`` returns always is.

        """
        rows, shown = self._rows(X), self._levels(alpha)
        levels = shown if isinstance(shown, tuple) else (shown,)
        self._check_unchanged()
        self._warn_of_infinite(Asked(levels))
        ranks = [kappa(level, len(self.loo_.codes)) for level in levels]

        def sets(block: Tensor) -> tuple[Tensor]:
            point, found = self.loo_.sets(block, self.construction, ranks)
            found[torch.arange(len(point)), point.argmax(dim=1)] = True
            return (found,)

        (found,) = self._by_blocks(sets, rows)
        inside: NDArray[np.bool_] = found.cpu().numpy()
        return inside if isinstance(shown, tuple) else inside[:, :, 0]

    def _rows(self, X: Any) -> Tensor:
        check_is_fitted(self)
        return to_tensor(self.scaling_(self._check_new(X))).flatten(1)

    @noticing_memory
    def _values(self, X: Any) -> Array:
        """f_c(x) of the full-data model, shape (m, classes)."""
        (found,) = self._by_blocks(lambda block: (self.loo_.point(block),), self._rows(X))
        values: Array = found.cpu().numpy()
        return values
