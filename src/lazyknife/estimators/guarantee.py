"""The certificate of a fit, tied to the settings that the fit had."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from ..certificate import Certificate
from ..data.checks import check_level
from ..sentences import SET_LATER
from ..settings import grouped, with_settings

FREE = ("alpha", "nu", "progress")  # settings that count when predicting, not when fitting
WITHOUT_EFFECT = ("progress", "device", "memory_budget")  # settings that move no interval


class Guaranteed(BaseEstimator):  # type: ignore[misc]
    """An estimator whose certificate is about its fit: settings that changed since are refused."""

    alpha: float
    _certify: Callable[..., Certificate]
    _certificate: Certificate
    _settings: dict[str, Any]
    _set_later: tuple[str, ...] = ()

    def set_params(self, **params: Any) -> Self:
        """Set settings by name, also those of the base, the loss or the features.

        ``set_params(base__epsilon=0.1)`` replaces the base by a changed copy; the base itself
        may be shared and stays as it is. After ``fit``, ``alpha`` and ``nu`` take effect at once;
        after any other change, intervals and certificates are refused until the next fit.
        """
        plain, nested = grouped(params)
        super().set_params(**plain, **dict.fromkeys(nested.keys() - self.get_params(deep=False)))
        for name, changes in nested.items():
            held = getattr(self, name)
            if hasattr(held, "set_params"):  # a transformer of scikit-learn
                changed = clone(held).set_params(**changes)
            else:
                changed = with_settings(held, changes, name)
            setattr(self, name, changed)
        moved = (key for key in params if key not in WITHOUT_EFFECT)
        self._set_later = tuple(dict.fromkeys((*self._set_later, *moved)))
        return self

    @property
    def certificate_(self) -> Certificate:
        """The coverage guarantee at the estimator's own level."""
        return self.certify()

    def certify(self, alpha: float | None = None) -> Certificate:
        """Return the certificate of a level, without a new fit; None is the estimator's own."""
        check_is_fitted(self)
        self._check_unchanged()
        level = check_level("alpha", self.alpha if alpha is None else alpha)
        return self._certificate if level == self._settings["alpha"] else self._certify(alpha=level)

    def _guarantee(self, certify: Callable[..., Certificate]) -> None:
        """Keep the certificate of a fit with its settings."""
        if self._set_later:
            certify = Noted(certify, self._set_later)
        self._certificate = certify(alpha=self.alpha)
        self._certify, self._settings = certify, self.get_params(deep=False)

    def _check_unchanged(self) -> None:
        """Refuse settings other than those of the fit."""
        now = self.get_params(deep=False)
        for name, fitted in self._settings.items():
            if name not in FREE and not same(now[name], fitted):
                raise NotFittedError(  # so that hasattr(model, "certificate_") is False
                    f"{name}={now[name]!r}, but {type(self).__name__} was fitted with "
                    f"{name}={fitted!r}: call fit again, or set it back"
                )


@dataclass(frozen=True)
class Noted:
    """Certificates that say which settings were set after the estimator was made."""

    certify: Callable[..., Certificate]
    names: tuple[str, ...]

    def __call__(self, alpha: float) -> Certificate:
        found, remark = self.certify(alpha=alpha), SET_LATER.format(names=", ".join(self.names))
        return replace(found, remarks=(*found.remarks, remark))


def same(value: Any, other: Any) -> bool:
    """Whether two settings are equal; arrays and modules only if they are one object."""
    if value is other:
        return True
    try:
        return bool(value == other)
    except (TypeError, ValueError):
        return False
