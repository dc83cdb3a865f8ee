"""Every sentence of a certificate; those with fields in braces are filled by ``str.format``."""

from __future__ import annotations

import math
from collections.abc import Iterable

# The first line: what to expect, and what is guaranteed for whom, or that nothing is.
EXPECT = {
    "both": "Expect {about} {share} of the intervals to contain the true y.",
    "upper": "Expect {about} {share} of the true y to be at most the upper limit.",
    "lower": "Expect {about} {share} of the true y to be at least the lower limit.",
}
EXPECT_CLASSES = "Expect about {share} of the sets, or more, to contain the true class."
EXPECT_BOXES = "Expect {about} {share} of the boxes to contain all outputs of the true y."
GUARANTEE = "Guaranteed: at least {coverage}{more}, for {rows}."
MORE = " ({coverage} with construction={construction!r})"
NO_GUARANTEE = "No coverage is guaranteed"
VACUOUS = "The guarantee is vacuous"
DETAILS = "print(certificate.details) shows what it assumes"

# What it is about, and over what it is an average.
ANY_ROW = "any new row"
IN_GROUPS = "{rows}, in each group"
IF_RIGHT = "{rows}, if the weights are right"
NEW_CLUSTER = "any new row of a new cluster, clusters counting alike"
MOST_SETS = "{rows}, with {share} of all training sets"
POOL_ROWS = "the rows passed as X_pool, and no others"
REFUSED = "a fit or certificate that is refused counts as covered"
MARGINAL = (
    "on average over the training rows, the randomness of the algorithm and the new row; not for "
    "a given training set or a given x; " + REFUSED
)
# The same where the seed draws the rows that make choices, and only the average over it is bounded.
OVER_SEEDS = (
    "on average over the training rows, the new row and the randomness of the algorithm, which "
    "includes the seed: it draws the rows on which models make their choices; not for a given "
    "training set, a given seed or a given x; " + REFUSED
)

# The same for a given training set.
GIVEN_ROWS = (
    "on average over the new row; not for a given x, and not for every training set; " + REFUSED
)

# Which theorem gives each of ``Certificate.bounds``.
THEOREMS = {
    "ghost_point": "By the ghost-point theorem; the base's total variation is {tau:.4f}.",
    "jackknife_plus": "By the jackknife+ theorem of Barber, Candès, Ramdas and Tibshirani (2021).",
    "cv_plus": "By a version of the CV+ theorem of Barber, Candès, Ramdas and Tibshirani (2021).",
    "split_conformal": "By the rank of an exchangeable score.",
    "most_sets": (
        "By the distribution of order statistics of independent scores; for CV+ by Bian and Barber "
        "(2023)."
    ),
}
PAPER = (
    "The paper's Theorem 1 would give {paper:.3f} for intervals widened by {nu}, if its stability "
    "condition held with η = {eta:g}; {paper_literal:.3f} if ε and δ are read under adding or "
    "removing a row, which its proof does not allow; shown for comparison, not certified."
)

# Remarks on fits of many rows.
ANY_PART = (
    "The seed draws the rows on which models make their choices; the guarantee holds whichever "
    "rows it draws."
)
PARTED = (
    "n counts the rows that are left out; {count:,} more were set aside for choices, and train "
    "every model."
)
SPLIT = "n counts the rows whose errors are ranked; {count:,} others choose and train the model."

OWN_BASE = (
    "What dependence() of the base {base} returns bounds how the weights that its learn() returns "
    "depend on a row."
)

# Remarks on every base whose guarantee comes from random noise.
PRIVATE_REMARKS = (
    "The guarantee is an average over the seeds of the private training: it does not hold for a "
    "seed that was chosen by looking at results.",
    "Only the base weights θ0 are differentially private; the fitted models and the intervals are "
    "not a private release.",
    "The noise counts as exact real numbers; what rounding it to floating point reveals is not "
    "accounted for.",
)

# Settings that were set by ``set_params``, and what a search over settings does.
SET_LATER = (
    "Set by set_params, as searches such as GridSearchCV do: {names}. If these rows were used to "
    "choose them, the certificate is that of lazyknife.after_search, not this one."
)
SEARCH_ELSEWHERE = "To lose nothing, search on some of the rows and fit on the others."
UNION = (
    "A search compared {count} settings on these rows, so the probabilities of a miss that each of "
    "them certifies are added (union bound). " + SEARCH_ELSEWHERE
)
SEARCHED = "A search chose the settings on these rows, and {why}. " + SEARCH_ELSEWHERE
WITHOUT_BOUND = "those compared are not all certified"
ADAPTIVE = "it did not list the settings before it looked at them"
ONLY_SEARCHED = "Nothing but these {count} settings was compared by looking at these rows."

# Assumptions.
EXCHANGEABLE = (
    "The training rows and the new row are exchangeable (for example, independent draws from the "
    "same distribution)."
)
CLUSTERS = (
    "The clusters of the training rows and that of the new row are exchangeable (for example, "
    "independent draws), and the new row is drawn from its cluster at random."
)
INDEPENDENT_ROWS = (
    "The training rows and the new row are independent draws from the same distribution."
)
SHIFTED = (
    "Rows are independent draws; new rows differ from training rows in the distribution of their "
    "features alone, by a ratio of densities that is {ratio}, up to a constant factor."
)
GIVEN_RATIO, ESTIMATED_RATIO = "the weights that were passed", "the one that was estimated"
KNOWN_CLASSES = (
    "The class of the new row occurs among the training rows; any other class is never in a set."
)
WORTH = ", weights that leave the training rows as much as {count:.0f} equal ones tell"
UNTUNED = "No setting was chosen by looking at these rows."
POOLED = "The training rows and all rows passed as X_pool are exchangeable."
BOTH_FILES = "All rows of the two files together are exchangeable."
FOLD_OF_NEW_ROWS = (
    "A whole fold of {count} new rows, not only one new row, is exchangeable with the training "
    "rows."
)
OUTSIDE = "The rows passed as X_unlabeled are neither training rows nor new rows."
IGNORES_ORDER = (
    "The transformer {transformer!r} does not depend on the order of the rows it is fitted on."
)
ROW_BY_ROW = "The transformer {transformer!r} transforms each row independently of the others."
OWN_TARGET = (
    "The functions passed as target were not chosen by looking at these rows, and are, but for a "
    "few units of rounding, strictly monotone and inverse to each other for every value of y."
)
BOUNDED = "y always lies within bounds={bounds}."
DOMAIN = "y is always {values}."
PUBLIC_START = (
    "The network's starting weights and buffers (for example, batch-norm statistics) do not depend "
    "on the training rows or the new rows."
)
OWN_TYPE = (
    "The network, which does not run in float64, gives a row the same output in every batch but "
    "for {units:g} units of rounding in float32."
)
PUBLIC_KERNEL = "The kernels that were passed do not depend on the training rows or the new rows."
SENSITIVITY = (
    "Adding or removing one row changes the trained weights by at most {sensitivity:g} in the "
    "{norm} norm (asserted by the user, not checked)."
)

# Objections: each leaves no guarantee, and says what to do.
NO_THEOREM = "Construction {construction!r} has no coverage guarantee: use {others}."
NO_GIVEN_SET = (
    "Nothing holds for a given training set with construction {construction!r} unless the models "
    "are stable (Bian and Barber, 2023): use {others}, or leave out confidence=."
)
SEEN_GIVEN_SET = (
    "Nothing holds for a given training set if the base has seen all rows or the scaling those of "
    "X_pool: use Public or Split without X_pool, or leave out confidence=."
)
OWN_CONSTRUCTION = (
    "Nothing is known of the coverage of construction {construction!r}, which was passed as an "
    "object: use {others}."
)
NOT_PRIVATE = (
    "The {base} base was trained on all rows without differential privacy: use Public, Split, or "
    "DPSGD with a finite epsilon."
)
FITTED_ON_TRAINING = (
    "The scaling was fitted on the training rows alone, which is a leak: pass the rows to predict "
    "as X_pool or other rows as X_unlabeled, or use scaling='symlog'."
)
ENCODED_ON_TRAINING = (
    "Categories or missing values were encoded by the training rows alone, which is a leak for a "
    "network of finite width: pass the rows to predict as X_pool or other rows as X_unlabeled, or "
    "use infinitely wide networks (network=None), which need no such encoding."
)
FITTED_STEP = (
    "The pipeline's step {name!r} was fitted on all training rows, which is a leak: pass it as "
    "scaling= with X_pool or X_unlabeled in fit, or leave it out (scaling='auto')."
)
TRAINING_ROWS_OUTSIDE = (
    "{count} of the rows passed as X_unlabeled are training rows, which is a leak: pass rows that "
    "were set apart by their position, not by comparing them with the training rows, or pass the "
    "rows to predict as X_pool."
)
SCALE = (
    "Scale the features (scaling='symlog', or 'standardize' with X_pool), use a larger ridge, "
    "or, if some y are far larger than the others, target_transform='symlog'."
)
_LARGER = (
    "a larger λ, for example ridge=0.01, or, if some y are far larger than the others, "
    "target_transform='symlog'."
)
SCALED_ALREADY = "The features are scaled already: give " + _LARGER
UNSURE_OF_WIDTHS = (
    "They may have chosen their widths by rounding: give widths='constant', " + _LARGER
)
ROUNDING_MOVES = (
    "Rounding errors may move the interval ends by {times} the residuals that determine them"
    "{cause}. {remedy}"
)
ROUNDING_DECIDES = (
    "Rounding errors leave {count} leave-one-out models undetermined{cause}. {remedy}"
)
UNLIKE_SCALES = "some features have very large or very different scales, such as column {columns}"


def percent(share: float) -> str:
    """Return a share in per cent, with at most two decimals and not rounded up."""
    return f"{math.floor(share * 1e4 + 1e-9) / 100:g} %"


def domain(values: str) -> tuple[str, ...]:
    """State the values that y may have; nothing if it may have any."""
    return (DOMAIN.format(values=values),) if values else ()


def rounded_down(coverage: float) -> str:
    """Return four decimals that are not above what is certified."""
    return f"{math.floor(coverage * 1e4) / 1e4:.4f}"


def either(choices: Iterable[str]) -> str:
    """Return ``'a', 'b' or 'c'``."""
    *first, last = map(repr, choices)
    return f"{', '.join(first)} or {last}" if first else last
