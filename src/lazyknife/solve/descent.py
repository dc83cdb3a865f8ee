"""Newton's steps for many models of a convex loss at once; newton.py has the notation.

The full model's steps solve their equations directly. All other models share its inverse and are
iterated together until they converge; the few that do not are solved one by one.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from .convex import ConvexProblem, Models, Shared, Step
from .line_search import step_length

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
