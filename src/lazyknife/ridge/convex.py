"""All leave-one-out models of a convex loss at once, from one kernel matrix, by Newton's method.

Notation: K the kernel of the n training rows, o = f(X; θ0) the offsets, λ the ridge. Model j
minimises, over a move Δ of the weights and an unpenalised intercept β,

    Σ_{i≠j} ℓ(y_i, f_i) + (λ/2)‖Δ‖²,   Δ = Jᵀα,   f = o + Kα + β,

and at its solution the residual G_i = λα_i + [i ≠ j] ℓ'(y_i, f_i) is 0 for every i; so α_j = 0,
and with an intercept Σα = 0. With W = diag ℓ''(y, f), 0 at row j, a Newton step (a, b) solves

    λa + W(Ka + b1) = −G,   Σa = 0.

The full model's steps solve that directly. The n others start from the full solution and share its
inverse Z = (λI + WK)⁻¹, with an intercept Z − (ZW1)(1ᵀZ)/t, t = 1ᵀZW1. Without row j it is
x = ZR − Z_{:j}(ZR − R/λ)_j/Z_jj, as in the ridge (there Z is A): the first step is the well-known
approximation in closed form. The following steps have weights of their own and are solved by
conjugate gradients, preconditioned by the shared inverse: a few products of n×n matrices for all
columns together. The few models that do not converge in this way are solved one by one.

Memory: the kernel, the shared inverse and the models, n×n each, besides the machine's blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..compute import Machine, blocks, track
from ..losses import Loss
from .dual import DualSystem
from .system import OwnRidges, RidgeModels


@dataclass(frozen=True)
class Limits:
    """Largest number of Newton steps for all models together, and for one model alone."""

    joint: int = 25
    alone: int = 500


LIMITS = Limits()


@dataclass(frozen=True)
class ConvexProblem:
    """What all models share; rows of m models are columns of (n, m) tensors."""

    kernel: Tensor  # K, (n, n)
    y: Tensor  # (n, 1)
    offsets: Tensor  # o, (n, 1)
    ridge: float  # λ
    intercept: bool
    loss: Loss
    size: float  # ‖K‖
    limits: Limits = LIMITS

    def values(self, dual: Tensor, intercepts: Tensor) -> Tensor:
        """Return f = o + Kα + β."""
        return self.kernel @ dual + self.offsets + intercepts

    def weights(self, values: Tensor, keep: Tensor) -> Tensor:
        """ℓ'' of the rows kept; where all are 0, those of a parabola above the loss."""
        weights = keep * self.loss.curvature(values, self.y)
        none = ~(weights > 0).any(dim=0)
        if none.any():
            weights[:, none] = (keep * self.loss.majorant(values, self.y))[:, none]
        return weights


@dataclass(frozen=True)
class Models:
    """m models being solved; ``keep`` is 0 at the rows that they leave out, else 1."""

    dual: Tensor  # α, (n, m)
    intercepts: Tensor  # β, (m,)
    values: Tensor  # f, (n, m)
    keep: Tensor  # (n, m)
    left_out: Tensor  # row that each leaves out, (m,); empty for the full model

    def take(self, which: Tensor) -> Models:
        """Return some of the models."""
        return Models(
            self.dual[:, which],
            self.intercepts[which],
            self.values[:, which],
            self.keep[:, which],
            self.left_out[which] if len(self.left_out) else self.left_out,
        )

    def put_(self, which: Tensor, other: Models) -> None:
        """Copy these models from another record."""
        self.dual[:, which] = other.dual
        self.intercepts[which] = other.intercepts
        self.values[:, which] = other.values

    def moved(self, step: Step, length: Tensor) -> Models:
        """Return the models after a step of this length."""
        return replace(
            self,
            dual=self.dual + length * step.dual,
            intercepts=self.intercepts + length * step.intercepts,
            values=self.values + length * step.values,
        )


@dataclass(frozen=True)
class Step:
    """A direction for m models."""

    dual: Tensor  # a, (n, m)
    intercepts: Tensor  # b, (m,)
    values: Tensor  # φ = Ka + b, (n, m)

    def take(self, which: Tensor) -> Step:
        """Return the direction of some of the models."""
        return Step(self.dual[:, which], self.intercepts[which], self.values[:, which])

    def plus(self, other: Step, length: Tensor) -> Step:
        """Return self + length·other."""
        return Step(
            torch.addcmul(self.dual, length, other.dual),
            torch.addcmul(self.intercepts, length, other.intercepts),
            torch.addcmul(self.values, length, other.values),
        )


@dataclass(frozen=True)
class Shared:
    """The full model's inverse: Z, and the intercept b = qᵀR that goes with a = ZR."""

    inverse: Tensor  # Z, (n, n)
    share: Tensor  # q, (n,); zeros without an intercept

    def solve(self, problem: ConvexProblem, residual: Tensor, left_out: Tensor) -> Step:
        """λa + W(Ka + b) = R for the full model's weights, without the row left out."""
        columns = torch.arange(len(left_out), device=left_out.device)
        dual, intercepts = self.inverse @ residual, self.share @ residual
        own = residual[left_out, columns] / problem.ridge
        excess = (dual[left_out, columns] - own) / self.inverse[left_out, left_out]
        dual.addcmul_(self.inverse[:, left_out], excess, value=-1)
        dual[left_out, columns] = own
        if problem.intercept:  # Σa = 0 exactly, not to the rounding of Z
            excess_sum = dual.sum(dim=0) / (len(dual) - 1)
            dual -= excess_sum
            dual[left_out, columns] += excess_sum
            intercepts = intercepts - self.share[left_out] * excess
        return Step(dual, intercepts, problem.kernel @ dual + intercepts)


# Share of the predicted decrease to reach, shares of the slope that may be left.
DECREASE, FALL, RISE, TRIALS = 1e-4, 0.1, 0.5, 80
# What K maps to 0 is solved by a step of length 1, and a length s leaves |1 − s| of it: below 2.
LONGEST = 1.9


def step_length(problem: ConvexProblem, models: Models, step: Step) -> Tensor:
    """Length of each step, shape (m,): a sufficient decrease, and not too short.

    The objective along it is convex; its slope is Σ ℓ'φ + λaᵀ(f − o) + λs aᵀφ, as Kα = f − o − β
    and Σa = 0. Where that still falls steeply the length grows; where it has turned, or the
    objective has not fallen enough, it shrinks.
    """
    ridge = problem.ridge
    linear = ridge * (step.dual * (models.values - problem.offsets)).sum(dim=0)
    square = ridge * (step.dual * step.values).sum(dim=0)
    value = models.keep * problem.loss.value(models.values, problem.y)
    slopes = models.keep * problem.loss.gradient(models.values, problem.y)
    slope = (slopes * step.values).sum(dim=0) + linear
    slack = 8 * torch.finfo(slope.dtype).eps * value.abs().sum(dim=0)
    length = torch.ones_like(slope)
    low, high = torch.zeros_like(slope), torch.full_like(slope, torch.inf)
    open_ = torch.arange(len(slope), device=slope.device)
    for _ in range(TRIALS):
        s, keep = length[open_], models.keep[:, open_]
        moved = models.values[:, open_] + s * step.values[:, open_]
        change = (keep * problem.loss.value(moved, problem.y) - value[:, open_]).sum(dim=0)
        change = change + s * linear[open_] + s.square() / 2 * square[open_]
        slopes = keep * problem.loss.gradient(moved, problem.y)
        ahead = (slopes * step.values[:, open_]).sum(dim=0) + linear[open_] + s * square[open_]
        large = slope[open_] < -slack[open_]  # smaller ones are known only up to rounding
        far = change > DECREASE * s * slope[open_] + slack[open_]
        far |= ~torch.isfinite(change) | (large & (ahead > -RISE * slope[open_]))
        near = ~far & large & (ahead < FALL * slope[open_]) & (s < LONGEST)
        low[open_] = torch.where(near, s, low[open_])
        high[open_] = torch.where(far, s, high[open_])
        open_ = open_[near | far]
        if not len(open_):
            break
        middle = (low[open_] + high[open_]) / 2
        longer = (2 * length[open_]).clamp(max=LONGEST)
        length[open_] = torch.where(torch.isinf(middle), longer, middle)
    length[open_] = low[open_]
    return length


# |G| relative to the largest |ℓ'| of the model's rows, besides what rounding makes unavoidable.
TOLERANCE = 1e-9
BISECTIONS = 50
# Conjugate gradients stop at this share of the initial residual, or after this many steps.
FORCING, CONJUGATE_STEPS = 0.03, 10
# Units of rounding of f that are tolerated in a gradient.
ROUNDINGS = 16.0


def solve_full(problem: ConvexProblem) -> Models:
    """The model of all rows, starting from the offsets and the best constant."""
    zeros = torch.zeros_like(problem.y)
    nothing = torch.empty(0, dtype=torch.long, device=zeros.device)
    level = zeros[0] + (_level(problem) if problem.intercept else 0.0)
    start = Models(zeros, level, problem.offsets + level, torch.ones_like(zeros), nothing)
    return _solve_alone(problem, start)


def _level(problem: ConvexProblem) -> float:
    """The best intercept at the base weights, by bisection: where Newton's method starts."""

    def slope(level: float) -> float:
        return float(problem.loss.gradient(problem.offsets + level, problem.y).sum())

    high = 1.0
    while slope(-high) > 0 or slope(high) < 0:
        high *= 2
    low = -high
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if slope(middle) > 0 else (middle, high)
    return (low + high) / 2


def _solve_alone(problem: ConvexProblem, models: Models) -> Models:
    """Solve one model by damped Newton steps, each with a direct solve."""
    for _ in range(problem.limits.alone):
        residual, done = _residual(problem, models)
        if done.all():
            return _centred(problem, models)
        step = _own_step(problem, models, residual)
        length = step_length(problem, models, step)
        if not (length * step.dual.isfinite().all(dim=0) > 0).all():
            break  # no step helps any more
        models = models.moved(step, length)
        models = replace(models, values=problem.values(models.dual, models.intercepts))
    raise ValueError(
        f"Newton's method for the {problem.loss.name} loss did not converge at "
        f"ridge={problem.ridge:.3g} (residuals up to {float(residual.abs().max()):.2g}): use a "
        "larger ridge, or scale the features (scaling='symlog', or 'standardize' with X_pool)"
    )


def _own_step(problem: ConvexProblem, models: Models, residual: Tensor) -> Step:
    """One Newton step by a direct solve."""
    weights = problem.weights(models.values, models.keep)
    matrix = weights * problem.kernel
    matrix.diagonal().add_(problem.ridge)
    wanted = torch.cat([residual, weights], dim=1)
    dual, sums = _solved(problem, matrix, wanted).split(1, dim=1)
    intercepts = torch.zeros_like(models.intercepts)
    if problem.intercept:
        intercepts = dual.sum(dim=0) / sums.sum(dim=0)
        dual = dual - sums * intercepts
        dual = dual - (models.dual + dual).mean(dim=0)  # Σα = 0, whatever rounding did before
    return Step(dual, intercepts, problem.kernel @ dual + intercepts)


def _solved(problem: ConvexProblem, matrix: Tensor, wanted: Tensor) -> Tensor:
    """Solve linear equations; the error says why they are singular."""
    try:
        solution: Tensor = torch.linalg.solve(matrix, wanted)
    except RuntimeError as error:
        raise ValueError(
            f"the {problem.loss.name} loss cannot be solved at ridge={problem.ridge:.3g}: rounding "
            "outweighs the ridge. Use a larger ridge, or scale the features (scaling='symlog', or "
            "'standardize' with X_pool)"
        ) from error
    return solution


def share(problem: ConvexProblem, full: Models) -> Shared:
    """The inverse at the full solution."""
    weights = problem.weights(full.values, full.keep)
    if (weights > 0).sum() < 2:  # without its only row an intercept would have no curvature
        weights = weights.maximum(problem.loss.majorant(full.values, problem.y))
    matrix = weights * problem.kernel
    matrix.diagonal().add_(problem.ridge)
    inverse = _solved(problem, matrix, torch.eye(len(matrix)).to(matrix))
    if not problem.intercept:
        return Shared(inverse, torch.zeros_like(problem.y[:, 0]))
    sums = inverse @ weights  # ZW1
    share = inverse.sum(dim=0) / sums.sum()
    return Shared(inverse.addr_(sums[:, 0], share, alpha=-1), share)


def solve_without(problem: ConvexProblem, full: Models, shared: Shared, rows: Tensor) -> Models:
    """The models without each of these rows, from the full one."""
    columns = torch.arange(len(rows), device=rows.device)
    keep = problem.y.new_ones(len(problem.y), len(rows))
    keep[rows, columns] = 0.0
    models = Models(
        full.dual.repeat(1, len(rows)),
        full.intercepts.repeat(len(rows)),
        full.values.repeat(1, len(rows)),
        keep,
        rows,
    )
    open_ = columns
    for _ in range(problem.limits.joint):
        some = models.take(open_)
        residual, done = _residual(problem, some)
        if done.all():  # with updated values: check again with values computed from α and β
            fresh = problem.values(models.dual, models.intercepts)
            models = some = replace(models, values=fresh)
            residual, done = _residual(problem, models)
            open_ = columns
            if done.all():
                break
        some, residual, open_ = some.take(~done), residual[:, ~done], open_[~done]
        step = _conjugate_step(problem, shared, some, residual)
        models.put_(open_, some.moved(step, step_length(problem, some, step)))
    models = replace(models, values=problem.values(models.dual, models.intercepts))
    for k in (~_residual(problem, models)[1]).nonzero()[:, 0]:  # far from the full one
        alone = replace(full, keep=keep[:, k, None], left_out=rows[k, None])
        models.put_(k[None], _solve_alone(problem, alone))
    return _centred(problem, models)


def _residual(problem: ConvexProblem, models: Models) -> tuple[Tensor, Tensor]:
    """Return R = −G, shape (n, m), and for which of the models it is small enough, shape (m,)."""
    loss, y = problem.loss, problem.y
    slopes = models.keep * loss.gradient(models.values, y)
    residual = -(problem.ridge * models.dual + slopes)
    weight = _largest(models.keep * loss.curvature(models.values, y))
    # On the scale of a link f is known to a rounding of 1 at best, also where the slopes are 0.
    unit = 0.0 if loss.identity else 1.0
    rounding = problem.size * _largest(models.dual) + _largest(models.values) + unit
    epsilon = torch.finfo(y.dtype).eps
    allowed = TOLERANCE * _largest(slopes) + ROUNDINGS * epsilon * weight * rounding
    return residual, _largest(residual) <= allowed


def unsolved(problem: ConvexProblem, models: Models, roots: Tensor) -> float:
    """Return a bound on the error of the models' predictions, in units of √k(x, x).

    The objective is λ-strongly convex in the moves Δ, so with a residual R they are off by at most
    ‖JᵀR‖/λ ≤ Σ_i |R_i|√k(x_i, x_i)/λ; twice that leaves room for the intercept.
    """
    residual, _ = _residual(problem, models)
    return 2 * float((roots @ residual.abs()).max()) / problem.ridge


def _largest(numbers: Tensor) -> Tensor:
    return numbers.abs().amax(dim=0)


def _conjugate_step(
    problem: ConvexProblem, shared: Shared, models: Models, residual: Tensor
) -> Step:
    """One Newton step of each model, its own weights in it, by conjugate gradients.

    They run in the space of (Δ, β), where a residual stands for Jᵀ R and 1ᵀ R, so that its product
    with a step is Rᵀφ. The shared inverse is the preconditioner.
    """
    weights = problem.weights(models.values, models.keep)
    left_out, aim = models.left_out, FORCING * _largest(residual)
    epsilon = torch.finfo(residual.dtype).eps
    found = Step(torch.zeros_like(residual), torch.zeros_like(aim), torch.zeros_like(residual))
    open_ = torch.arange(len(aim), device=aim.device)
    direction, before = found, torch.ones_like(aim)
    for _ in range(CONJUGATE_STEPS):
        guess = shared.solve(problem, residual, left_out)
        product = (residual * guess.values).sum(dim=0)
        direction = guess.plus(direction, product / before)
        image = torch.addcmul(problem.ridge * direction.dual, weights, direction.values)
        length = product / (direction.values * image).sum(dim=0)
        # A move that changes no f (K may have many) is known only up to rounding: take it.
        noise = 8 * epsilon * problem.size * _largest(guess.dual) * residual.abs().sum(dim=0)
        length = torch.where((product > noise) & torch.isfinite(length), length, 1.0)
        found.dual[:, open_] += length * direction.dual
        found.intercepts[open_] += length * direction.intercepts
        found.values[:, open_] += length * direction.values
        residual = torch.addcmul(residual, length, image, value=-1)
        more = _largest(residual) > aim
        if not more.any():
            break
        before = product
        if not more.all():
            open_, left_out, aim, before = open_[more], left_out[more], aim[more], before[more]
            weights, residual = weights[:, more], residual[:, more]
            direction = direction.take(more)
    return found


def _centred(problem: ConvexProblem, models: Models) -> Models:
    """Move each intercept to the middle of the interval of optimal ones."""
    if not problem.intercept:
        return models
    kept = models.keep > 0
    fall, rise = (
        torch.where(kept, room, torch.inf).amin(dim=0)
        for room in problem.loss.flat(models.values, problem.y)
    )
    move = (rise - fall) / 2
    return replace(models, intercepts=models.intercepts + move, values=models.values + move)


# Tensors of n numbers that one column takes while it is solved.
TEMPORARIES = 24


def leave_one_out_newton(
    system: DualSystem,
    y: Tensor,
    own: OwnRidges,
    loss: Loss,
    progress: bool = False,
    limits: Limits = LIMITS,
) -> RidgeModels:
    """All n leave-one-out models of a loss, and the full one.

    Every model is solved until each |G_i| is at most 1e-9 of the model's largest |ℓ'(y_i, f_i)|, or
    down to the rounding of f where λ is tiny relative to the kernel. It takes O(n³) operations for
    all models together. Where a loss without curvature leaves an interval of optimal intercepts, as
    Huber's may, its middle is taken, so that each model is a function of its own rows alone.

    Parameters
    ----------
    system
        The kernel K and the targets y − f(X; θ0), on the scale of the link.
    y
        Targets, shape (n,).
    own
        λ of each model. Each of them is solved for those models that have it. Models choose on
        ``working_targets``, and multiply by ``working_weights``.
    loss
        ℓ.
    progress
        Whether to show progress bars.
    limits
        Largest numbers of steps.

    Returns
    -------
    RidgeModels
        Coefficients and intercepts on the scale of the link, residuals on that of y:
        y_j − mean(f_{−j}(x_j)), and y − mean(f) of the full model.

    """
    problem = replace(_problem(system, y, y - system.targets, loss), limits=limits)
    models = RidgeModels.empty(torch.empty_like(system.kernel), y)
    left, distinct = 0.0, own.values.unique().tolist()
    for ridge in track(distinct, "solving", len(distinct), progress and len(distinct) > 1):
        which = (own.values == ridge).nonzero()[:, 0]
        here = replace(problem, ridge=ridge)
        left = max(left, _solve_into_(models, which, here, system.machine, progress))
    return replace(models, unsolved=left, doubtful=own.doubtful)


def without_each(values: Tensor) -> Tensor:
    """Sums of all but one of the numbers, and last of all of them, shape (n + 1,).

    The number that a sum leaves out is never part of it: nothing is subtracted.
    """
    zero = values.new_zeros(1)
    before = torch.cat([zero, values.cumsum(dim=0)])
    after = torch.cat([values.flip(0).cumsum(dim=0).flip(0), zero])
    return torch.cat([before[:-1] + after[1:], before[-1:]])


def working_targets(loss: Loss, y: Tensor, offsets: Tensor) -> Tensor:
    """Targets z, shape (n,), whose squared loss approximates the loss near the offsets.

    With a weight w for ℓ'', ℓ(y, o + g) is about w(z/w − g)²/2 and a constant for z = −ℓ'(y, o),
    and the scale of z does not matter where λ/w is chosen. Where f is the mean of y itself the
    whole difference y − o is taken: Huber's ℓ' is the same for all rows that are far off. z_i is a
    function of row i alone.
    """
    return y - offsets if loss.identity else -loss.gradient(offsets, y)


def working_weights(loss: Loss, y: Tensor) -> Tensor:
    """The weight w used for ℓ'' in each of the n models and the full one, shape (n + 1,).

    ℓ'' at the mean of the targets of the model's own rows, with half a unit added to avoid 0,
    rounded to a power of 2: few values, so few λ. Row j never enters w_j.
    """
    sums = without_each(y)
    rows = torch.full_like(sums, len(y) - 1)
    rows[-1] = len(y)
    return torch.exp2(torch.log2(loss.variance((sums + 0.5) / (rows + 1))).round())


def _problem(system: DualSystem, y: Tensor, offsets: Tensor, loss: Loss) -> ConvexProblem:
    """Return the problem; raise an error if it has no finite solution or no finite start."""
    slopes = loss.gradient(offsets, y)
    if not torch.isfinite(slopes).all():
        raise ValueError(
            f"the {loss.name} loss overflows at the base's own predictions, which reach "
            f"{float(offsets.abs().max()):.3g} on the scale of the link: scale the features "
            "(scaling='symlog', or 'standardize' with X_pool), or use another base"
        )
    if system.intercept:
        far = torch.full_like(y, torch.inf)
        rising, falling = loss.gradient(far, y) > 0, loss.gradient(-far, y) < 0
        if min(int(rising.sum()), int(falling.sum())) < 2:
            raise ValueError(
                f"without one of the rows, the {loss.name} loss has no finite intercept: all other "
                f"rows have the same y={float(y.median()):g}. Give at least two rows with another "
                "y, or use fit_intercept=False"
            )
    columns = (y[:, None], offsets[:, None])
    largest = system.kernel.abs().sum(dim=1).max()
    return ConvexProblem(system.kernel, *columns, 1.0, system.intercept, loss, float(largest))


def _solve_into_(
    models: RidgeModels,
    which: Tensor,
    problem: ConvexProblem,
    machine: Machine,
    progress: bool = False,
) -> float:
    """Solve some of the n + 1 models, the full one being the last, and store them.

    Returns the remaining error of their equations, as in ``RidgeModels``.
    """
    y, loss = problem.y[:, 0], problem.loss
    full = solve_full(problem)
    models.ridges[which] = problem.ridge
    if which[-1] == len(y):
        which = which[:-1]
        models.full.copy_(full.dual[:, 0])
        models.intercepts[-1] = full.intercepts[0]
        models.training_residuals.copy_(y - loss.mean(full.values[:, 0]))
    if not len(which):
        return 0.0
    shared = share(problem, full)
    found, roots = models.terms, (problem.kernel.diagonal() + problem.ridge).sqrt()
    # Row j, left out, has the weights −Z_:j/Z_jj.
    reach = (roots @ shared.inverse.abs()) / (shared.inverse.diagonal().abs() * roots)
    left = 0.0
    parts = list(blocks(len(which), machine.item * TEMPORARIES * len(y), machine.block))
    for part in track(parts, "leaving rows out", len(parts), progress):
        rows = which[part]
        each = solve_without(problem, full, shared, rows)
        own = each.values[rows, torch.arange(len(rows), device=rows.device)]
        models.columns[:, rows] = each.dual * each.keep  # exactly 0, not up to rounding
        models.intercepts[rows] = each.intercepts
        models.residuals[rows] = y[rows] - loss.mean(own)
        found.load[rows] = roots @ each.dual.abs()
        left = max(left, unsolved(problem, each, roots))
    found.reach[which], found.roots[which] = reach[which], roots[which]
    found.own[which] = (found.reach * found.roots * found.load)[which]
    return left
