"""Which settings of a lazy step can be combined."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..data.checks import check_choice, check_folds, listed
from ..intervals import CONSTRUCTIONS, Construction, check_construction, find_construction
from ..losses import Loss
from ..networks.building import CODES
from ..ridge.readout import READOUTS
from ..ridge.widths import WIDTHS, Widths
from ..tangent import EXACT, FEATURES, FeatureMap


@dataclass(frozen=True)
class Choices:
    """Keys of the dicts of variants, and whether they can be combined.

    Attributes
    ----------
    construction, readout
        Keys of ``CONSTRUCTIONS`` and ``READOUTS``; a construction may be an object.
    widths
        A key of ``WIDTHS``; None is the construction's default.
    loss, features
        The loss and the features.
    candidates
        Whether models choose among candidates.

    """

    construction: str | Construction
    readout: str
    widths: str | None
    loss: Loss
    features: FeatureMap
    candidates: bool = False

    @property
    def _construction(self) -> Construction:
        return find_construction(self.construction)

    def check(self) -> None:
        """Raise an error for settings that cannot be combined."""
        check_construction(self.construction)
        check_choice("readout", self.readout, READOUTS)
        if not isinstance(self.features, FeatureMap):
            known = ", ".join(kind.__name__ for kind in FEATURES.values())
            raise TypeError(f"features={self.features!r}: give None or an instance of {known}")
        self._check_readout()
        self._check_loss()
        if self.widths is not None:
            self._check_widths(self.widths, WIDTHS)

    def check_rows(self, n: int, folds: int) -> None:
        """Raise an error for settings that require more than the n rows of the lazy step."""
        if self._construction.uses_folds:
            check_folds(folds, n)
        if self.widths is not None and n < WIDTHS[self.widths].fewest_rows:
            raise ValueError(
                f"widths={self.widths!r} requires at least {WIDTHS[self.widths].fewest_rows} rows, "
                f"not {n}: give more rows, or widths='constant'"
            )

    def widths_for(self, n: int) -> str:
        """The widths to use for n rows: the setting, or the default."""
        if self.widths is not None:
            return self.widths
        if self._construction.widths is not None:
            return self._construction.widths[0]
        return "auto" if self.candidates and n >= WIDTHS["auto"].fewest_rows else "constant"

    def cannot_choose(self, X: Tensor) -> str:
        """Why models of rows like X cannot choose among candidates; empty if they can."""
        if not self.loss.closed_form:
            return f"do not support loss={self.loss.name!r}: use loss='squared'"
        if self.readout != "tangent":
            return f"do not support readout={self.readout!r}: use readout='tangent'"
        if self.features != EXACT:
            return f"do not support features={self.features!r}: use features=None"
        if not X.is_floating_point():
            return f"require rows of numbers; {CODES}"
        if X.ndim != 2:
            return "require rows of numbers"
        return "require at least 4 rows" if len(X) < 4 else ""

    def _check_readout(self) -> None:
        allowed = self._construction.readouts
        if allowed is not None and self.readout not in allowed:
            raise ValueError(
                f"construction={self.construction!r} does not support readout={self.readout!r}: "
                f"choose from {listed(allowed)}"
            )
        if READOUTS[self.readout].moves_network and not self.features.has_moves:
            raise ValueError(
                f"features={self.features!r} does not support readout={self.readout!r}: its models "
                "do not move the network's parameters; use readout='tangent'"
            )

    def _check_loss(self) -> None:
        if self.loss.closed_form:
            return
        if not self._construction.any_loss:
            others = [name for name, kind in CONSTRUCTIONS.items() if kind.any_loss]
            raise ValueError(
                f"construction={self.construction!r} supports the squared loss only, not "
                f"loss={self.loss.name!r}: choose from {listed(others)}"
            )
        if not self.features.has_kernel:
            raise ValueError(
                f"loss={self.loss.name!r} does not support features={self.features!r}: use "
                "features=None, or loss='squared'"
            )

    def _check_widths(self, widths: str, known: dict[str, Widths]) -> None:
        check_choice("widths", widths, known)
        allowed = known if self._construction.widths is None else self._construction.widths
        if widths not in allowed:
            raise ValueError(
                f"construction={self.construction!r} does not support widths={widths!r}: choose "
                f"from {listed(allowed)}, or None"
            )
        misfit = self._misfits(known[widths])
        if misfit:
            others = [name for name in allowed if not self._misfits(known[name])]
            raise ValueError(f"widths={widths!r} {misfit}: choose from {listed(others)}, or None")

    def _misfits(self, kind: Widths) -> str:
        """Why widths do not support the models or the loss; empty if they do."""
        if kind.needs_candidates and not self.candidates:
            return "requires models that choose λ or a network (ridge='auto')"
        if not (self.loss.closed_form or kind.any_loss):
            return f"does not support loss={self.loss.name!r}"
        return ""
