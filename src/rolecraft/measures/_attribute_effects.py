"""Effects of attributes on behaviour: as believed, as played, and as moved by an imposed theory (arXiv 2507.02197)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rolecraft.errors import UserError, did_you_mean
from rolecraft.measures._consistency import (
    LEAST_PERSONAS,
    Figure,
    HorizonCurve,
    IndividualConsistency,
    _bootstrapped,
    _check_scale,
    _figure,
    _means,
    _rank_correlations,
    _table,
)
from rolecraft.measures._statistics import Floats

LEAST_ATTRIBUTES = 3
"""With fewer, no correlation over attributes is given."""

Effect = Literal["correlation", "difference", "eta-squared"]
"""How an attribute's effect is told; see `attribute_effect`."""


@dataclass(frozen=True)
class AttributeEffect:
    """One attribute's effect on the actions, as believed and as played."""

    believed: float
    played: Figure
    agreement: Figure
    """1 - |believed - played|."""
    same_sign: bool | None
    """None where either effect is 0, unknown or has no sign."""


@dataclass(frozen=True)
class PopulationConsistency:
    """Beliefs about attributes against their effects in the played data."""

    effects: Mapping[str, AttributeEffect]
    order: Figure
    """Spearman's correlation of believed and played effects over attributes."""

    @property
    def agreement(self) -> float:
        """Mean agreement over the attributes where it is known; NaN where it is nowhere."""
        known = [effect.agreement.estimate for effect in self.effects.values() if not effect.agreement.reason]
        return float(np.mean(known)) if known else math.nan

    @property
    def signs(self) -> float:
        """Share of attributes whose sign was told right, of those that have one; NaN where none has."""
        known = [effect.same_sign for effect in self.effects.values() if effect.same_sign is not None]
        return float(np.mean(known)) if known else math.nan


@dataclass(frozen=True)
class ConsistencyReport:
    """All that was found about one agent and one way of asking."""

    individual: IndividualConsistency
    population: PopulationConsistency | None = None
    horizon: HorizonCurve | None = None
    compliance: Mapping[str, Figure] = field(default_factory=dict)
    """By the name of the imposed theory."""

    def text(self) -> str:
        """Say in plain words what beliefs tell about behaviour, a line per finding."""
        one = self.individual
        lines = [f"Individuals: {_individual_words(one)}"]
        if self.population is not None:
            known = self.population.effects.items()
            told = [name for name, effect in known if effect.same_sign and effect.played.excludes_zero]
            wrong = [name for name, effect in known if effect.same_sign is False and effect.played.excludes_zero]
            lines.append(
                f"Population: the direction is believed as it is played for {', '.join(told) or 'no attribute'}"
                + f", and the other way round for {', '.join(wrong)}" * bool(wrong)
                + f"; order over attributes {_words(self.population.order)}."
            )
        if self.horizon is not None:
            lines.append(f"Horizon: the error changes by {_words(self.horizon.slope)} of the scale per round ahead.")
        lines += [f"Imposed, {name}: compliance {_words(figure)}." for name, figure in self.compliance.items()]
        return "\n".join(lines)


def _individual_words(one: IndividualConsistency) -> str:
    if one.corrected.reason:
        return f"raw correlation {_words(one.rho)}; corrected {_words(one.corrected)}."
    if not one.corrected.low > 0:
        found = "beliefs do not predict who does more"
    elif one.gap.low > 0:
        found = "beliefs predict behaviour less well than a persona's own plays do"
    else:
        found = "beliefs predict behaviour as far as it can be predicted"
    return (
        f"{found} (corrected {_words(one.corrected)}, raw {_words(one.rho)}, ceiling {_words(one.action_reliability)})."
    )


def _words(figure: Figure) -> str:
    return f"undefined: {figure.reason}" if figure.reason else str(figure)


def attribute_effect(
    attribute: ArrayLike, values: ArrayLike, kind: Effect = "correlation", scale: float = 1.0
) -> float:
    """Return the effect of an attribute on some values; NaN where it is undefined.

    Args:
        attribute: Shape (personas,): numbers, NaN where a persona lacks it; for `eta-squared` any labels, None where
            it is lacking.
        values: Shape (personas,).
        kind: `correlation` is Spearman's. `difference` is the mean of the personas above the middle of the attribute's
            range minus that of those below it, over `scale`; it is linear in the values, so that mixtures of two
            behaviours have the mixture of their effects. `eta-squared` is the share of variance between groups, of a
            one-way analysis of variance; it has no sign.
        scale: The range of the values; only `difference` uses it.

    Raises:
        UserError: If the kind is unknown or the lengths differ.
    """
    number, done = _codes("attribute", attribute, kind), np.asarray(values, dtype=float)
    if number.shape != done.shape or done.ndim != 1:
        raise UserError(f"expected an attribute and a value per persona, got shapes {number.shape} and {done.shape}.")
    _check_scale(scale)
    return float(_effects(number[None], done[None], kind, scale)[0])


def population_consistency(
    believed: Mapping[str, float],
    attributes: Mapping[str, ArrayLike],
    actions: ArrayLike,
    *,
    kind: Effect = "correlation",
    scale: float = 1.0,
    draws: int = 1000,
    seed: int = 0,
) -> PopulationConsistency:
    """Compare believed effects of attributes with those in played data.

    Args:
        believed: Effect by attribute, in the unit of `kind`; NaN where none was stated.
        attributes: Per attribute its value for every persona; see `attribute_effect`.
        actions: Shape (personas, plays).
        kind: How effects are told.
        scale: Range of the actions.
        draws: Bootstrap resamples of the personas.
        seed: Of the resampling.

    Raises:
        UserError: If an attribute is believed and not given, or the other way round, or lengths differ.
    """
    for name in [*believed, *attributes]:
        if name not in believed or name not in attributes:
            lacking, other = ("beliefs", believed) if name not in believed else ("attributes", attributes)
            raise UserError(f"attribute {name!r} is not among the {lacking}.{did_you_mean(name, other)}")
    _check_scale(scale)
    done = _means(_table("actions", actions))
    codes = {name: _codes(name, values, kind) for name, values in attributes.items()}
    for name, code in codes.items():
        if code.shape != done.shape:
            raise UserError(f"attribute {name!r} has shape {code.shape}; expected one value for each of {len(done)}.")
    stated = np.array([float(believed[name]) for name in codes])

    def figures(rows: NDArray[np.intp]) -> dict[str, Floats]:
        played = {name: _effects(code[rows], done[rows], kind, scale) for name, code in codes.items()}
        stack = np.stack(list(played.values()), -1) if played else np.zeros((len(rows), 0))
        order = _rank_correlations(np.broadcast_to(stated, stack.shape), stack, LEAST_ATTRIBUTES)
        agreement = {f"agreement {name}": 1 - np.abs(float(believed[name]) - played[name]) for name in codes}
        return {**{f"played {name}": values for name, values in played.items()}, **agreement, "order": order}

    found = _bootstrapped(figures, len(done), draws, seed)
    effects = {}
    for name, code in codes.items():
        n = int((np.isfinite(code) & np.isfinite(done)).sum())
        why = (
            f"{n} personas have {name!r} and an action, at least {LEAST_PERSONAS} are needed" if n < LEAST_PERSONAS
            else f"{name!r} or the action is the same for all personas"
        )  # fmt: skip
        played = _figure(found[f"played {name}"], why, n)
        agreement = _figure(found[f"agreement {name}"], played.reason or f"no effect of {name!r} was stated", n)
        signed = kind != "eta-squared" and not agreement.reason and believed[name] * played.estimate != 0
        same = bool(np.sign(believed[name]) == np.sign(played.estimate)) if signed else None
        effects[name] = AttributeEffect(float(believed[name]), played, agreement, same)
    why = f"fewer than {LEAST_ATTRIBUTES} attributes with both effects, or all effects of one side are equal"
    return PopulationConsistency(effects, _figure(found["order"], why))


def prior_compliance(
    attribute: ArrayLike,
    baseline: ArrayLike,
    imposed: ArrayLike,
    target: float,
    *,
    scale: float,
    draws: int = 1000,
    seed: int = 0,
) -> Figure:
    """Return how far an imposed theory moved an attribute's effect: 0 not at all, 1 all the way, below 0 away from it.

    The effect is the `difference` of `attribute_effect`.

    Args:
        attribute: Shape (personas,).
        baseline: Actions without the theory, shape (personas, plays).
        imposed: Actions of the same personas with it, shape (personas, plays).
        target: The effect that the theory states.
        scale: Range of the actions.
        draws: Bootstrap resamples of the personas.
        seed: Of the resampling.

    Raises:
        UserError: If lengths differ.
    """
    _check_scale(scale)
    code = _codes("attribute", attribute, "difference")
    before, after = _means(_table("baseline", baseline)), _means(_table("imposed", imposed))
    if not code.shape == before.shape == after.shape:
        raise UserError(f"expected the same personas, got {len(code)}, {len(before)} and {len(after)} of them.")

    def figures(rows: NDArray[np.intp]) -> dict[str, Floats]:
        start, end = (_effects(code[rows], done[rows], "difference", scale) for done in (before, after))
        room = np.where(np.abs(target - start) > 1e-9, target - start, math.nan)
        return {"compliance": (end - start) / room}

    why = "the effect without the theory is unknown, or is the stated one already"
    return _figure(_bootstrapped(figures, len(code), draws, seed)["compliance"], why)


def _codes(name: str, attribute: ArrayLike, kind: Effect) -> Floats:
    """Return an attribute as numbers: groups are numbered."""
    if kind not in get_args(Effect):
        raise UserError(
            f"no effect {kind!r}.{did_you_mean(kind, get_args(Effect))} Known: {', '.join(get_args(Effect))}."
        )
    if kind != "eta-squared":
        try:
            return np.asarray(attribute, dtype=float)
        except (TypeError, ValueError):
            raise UserError(f"{name}: a {kind} needs numbers; for groups take the effect 'eta-squared'.") from None
    names = [None if label is None or label != label else str(label) for label in np.asarray(attribute, dtype=object)]
    groups = sorted({name for name in names if name is not None})
    return np.array([math.nan if name is None else groups.index(name) for name in names], dtype=float)


def _effects(attribute: Floats, values: Floats, kind: Effect, scale: float) -> Floats:
    """Return the effect along the last axis."""
    if kind == "correlation":
        return _rank_correlations(attribute, values)
    present = np.isfinite(attribute) & np.isfinite(values)
    enough = present.sum(-1) >= LEAST_PERSONAS
    if kind == "difference":
        top = np.where(present, attribute, -np.inf).max(-1, keepdims=True)
        bottom = np.where(present, attribute, np.inf).min(-1, keepdims=True)
        with np.errstate(invalid="ignore"):
            middle = (top + bottom) / 2
            sides = [_mean_where(values, present & side) for side in (attribute > middle, attribute < middle)]
        return np.where(enough, (sides[0] - sides[1]) / scale, math.nan)
    mean = _mean_where(values, present)
    total = (np.where(present, values - mean[..., None], 0.0) ** 2).sum(-1)
    between = np.zeros_like(total)
    for group in np.unique(attribute[np.isfinite(attribute)]):
        inside = present & (attribute == group)
        between += inside.sum(-1) * np.nan_to_num((_mean_where(values, inside) - mean) ** 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(enough & (total > 1e-12), between / total, math.nan)


def _mean_where(values: Floats, inside: NDArray[np.bool_]) -> Floats:
    with np.errstate(invalid="ignore"):
        mean: Floats = np.where(inside, values, 0.0).sum(-1) / inside.sum(-1)
    return mean
