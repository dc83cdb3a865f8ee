"""Exact coverage with few rows: every data set is fitted, and nothing is simulated.

Rows take few values, the atoms. Every law under which n + 1 rows are exchangeable is a mixture of
bags: n + 1 atoms are given, and only their order is drawn. A guarantee that assumes no more than
exchangeable rows thus holds for every law on some atoms if and only if it holds for every bag of
them, where the probability of a miss is a count: of all orders, those whose last row is missed by
the interval of the rows before it.

A method may treat rows unlike others by their numbers, such as those of different folds. Blocks are
sets of rows that it treats alike; the order within a block does not matter.
"""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations_with_replacement, permutations
from typing import Any, NamedTuple

import numpy as np

from reference import Array

Number = Fraction | int
Bag = tuple[int, ...]
# From rows and targets to the models that a method may fit to them, each with its probability.
Method = Callable[[Array, Array], Iterable[tuple[Number, Any]]]

IGNORED = "no coverage is guaranteed|the moved networks are far"


class Result(NamedTuple):
    """What becomes of one data set.

    Attributes
    ----------
    missed
        For each atom as the new row the probability of a certified interval that misses it.
    refused
        The probability that there is no certificate, which counts as a cover.

    """

    missed: list[Number]
    refused: Number


@dataclass(frozen=True)
class Enumeration:
    """All data sets of a method whose rows are some atoms.

    Attributes
    ----------
    method
        From rows to fitted models.
    atoms
        Values of the features and, last, of y, shape (atoms, features + 1).
    blocks
        Numbers of the rows in each block.
    certified
        The coverages that models had so far.

    """

    method: Method
    atoms: Array
    blocks: Sequence[Sequence[int]]
    certified: set[float] = field(default_factory=set)
    _results: dict[tuple[Bag, ...], Result] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """The number n."""
        return sum(map(len, self.blocks))

    def bags(self, size: int | None = None) -> Iterator[Bag]:
        """Every bag of the atoms, of n + 1 of them or more."""
        return combinations_with_replacement(range(len(self.atoms)), size or self.rows + 1)

    def miss(self, bag: Bag) -> Number:
        """The probability that the row after the first n of a bag is missed."""
        return self._mean(bag, lambda result, new: result.missed[new])

    def refused(self, bag: Bag) -> Number:
        """The probability that the first n rows of a bag have no certificate."""
        return self._mean(bag, lambda result, new: result.refused)

    def _mean(self, bag: Bag, value: Callable[[Result, int], Number]) -> Number:
        """The mean of a value over all orders of a bag."""
        n, cases = self.rows, Counter[tuple[tuple[Bag, ...], int]]()
        for order, ways in Counter(permutations(bag, n + 1)).items():
            data = tuple(tuple(sorted(order[row] for row in rows)) for rows in self.blocks)
            cases[data, order[n]] += ways
        total = sum(ways * value(self._result(data), new) for (data, new), ways in cases.items())
        return Fraction(total, math.perm(len(bag), n + 1))

    def _result(self, data: tuple[Bag, ...]) -> Result:
        if data not in self._results:
            order = np.empty(self.rows, dtype=int)
            for rows, chosen in zip(self.blocks, data, strict=True):
                order[list(rows)] = chosen
            self._results[data] = self._fit(self.atoms[order])
        return self._results[data]

    def _fit(self, rows: Array) -> Result:
        new, truth = self.atoms[:, :-1], self.atoms[:, -1]
        missed, refused = [Fraction(0)] * len(new), Fraction(0)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", IGNORED)
            for probability, model in self.method(rows[:, :-1], rows[:, -1]):
                coverage = model.certificate_.coverage
                if coverage is None:
                    refused += probability
                    continue
                self.certified.add(coverage)
                covered = model.predict_interval(new).covers(truth)
                for atom in np.flatnonzero(~covered):
                    missed[atom] += probability
        return Result(missed, refused)
