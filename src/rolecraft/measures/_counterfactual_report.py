"""What the answers to a paired-counterfactual probe say: flips, holds, matched contrasts, the liking for a place."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rolecraft.errors import UserError, did_you_mean
from rolecraft.measures._consistency import Figure, _figure
from rolecraft.measures._statistics import Floats, bootstrap_mean, paired_bootstrap, wilson

BASE, IDENTITY = "base", "identity"
"""The item as it is; and once more, which shows the noise of the answers."""
_TIE = 1e-9


@dataclass(frozen=True)
class ProbeRow:
    """The answer to one question."""

    item: str
    factor: str
    level: str
    order: int
    p: tuple[float, ...] | None
    """Probability of each option, in the item's own order whatever was shown first; None: no answer."""


@dataclass(frozen=True)
class VariantEffect:
    """What one level of one factor did, item by item against the base; undefined figures say why."""

    factor: str
    level: str
    placebo: bool
    items: int
    """Asked."""
    missing: int
    """Without an answer, to the base or to the variant, in some order of the options."""
    undecided: int
    """Whose averaged answer prefers no option, to the base or to the variant: the answer follows the place, not the
    content. They have no choice that could flip, and count in `contrast` all the same."""
    flip: Figure
    """Share of items whose choice differs from the base's; Wilson's interval."""
    hold: Figure
    """1 - flip."""
    toward: Figure
    """Share of items that go over to their target."""
    away: Figure
    """Share of items that leave their target."""
    excess: Figure
    """Share that flips here and not when merely asked again, minus the other way round: flips above the noise."""
    contrast: Figure
    """Mean change of the target's probability; bootstrap over items."""
    spread: Figure
    """Mean square of that change: how far answers move, whatever the direction."""
    position: Figure
    """Liking for the place shown first, in the variant; see `ProbeReport.position`."""

    @property
    def outweighed(self) -> bool:
        """Whether the liking for a place is larger than the contrast."""
        return abs(self.position.estimate) > abs(self.contrast.estimate)


@dataclass(frozen=True)
class ProbeReport:
    """All effects, and what they are to be held against."""

    effects: tuple[VariantEffect, ...]
    """`IDENTITY` first."""
    position: Figure
    """Probability of the option shown first, over all orders of the base, minus that of an even choice."""
    order_bound: Figure
    """Share of base items whose choice depends on the order of the options; Wilson's interval."""
    shifts: Mapping[tuple[str, str], Mapping[str, float]] = field(repr=False, default_factory=dict)
    """By factor and level: change of the target's probability by item."""

    @property
    def noise(self) -> Figure:
        """Flip rate of the base asked again."""
        return self.effect(IDENTITY).flip

    @property
    def sound(self) -> bool:
        """Whether no placebo flips more than the base asked again: its excess may be 0."""
        return not any(effect.placebo and effect.excess.low > 0 for effect in self.effects)

    def effect(self, factor: str, level: str = "") -> VariantEffect:
        """Return the effect of one level.

        Raises:
            UserError: If it was not asked about.
        """
        found = {(effect.factor, effect.level): effect for effect in self.effects}
        if (factor, level) not in found:
            known = [f"{name}={value}" for name, value in found if name != IDENTITY]
            raise UserError(
                f"no level {factor}={level} ({', '.join(known)}).{did_you_mean(f'{factor}={level}', known)}"
            )
        return found[factor, level]

    def contrast(self, factor: str, level: str, other: str, *, draws: int = 2000, seed: int = 0) -> Figure:
        """Return the mean difference of the target's probability between two levels, over the items that have both.

        Args:
            factor: The factor; for its base level give `effect` instead.
            level: One level.
            other: The level it is compared with.
            draws: Bootstrap resamples of the items.
            seed: Of the resampling.

        Raises:
            UserError: If a level was not asked about.
        """
        for name in (level, other):
            self.effect(factor, name)
        one, two = self.shifts[factor, level], self.shifts[factor, other]
        both = [one[item] - two[item] for item in one if item in two]
        return _figure(
            paired_bootstrap(both, draws=draws, seed=seed), "no item with a target has answers at both levels"
        )

    def text(self) -> str:
        """Say what was found, a line per level."""
        lines = [
            f"{'placebo ' * effect.placebo}{effect.factor}{f' = {effect.level}' * bool(effect.level)}: flips "
            f"{_words(effect.flip)}, contrast {_words(effect.contrast)}"
            + "; less than the liking for a place"
            * effect.outweighed
            for effect in self.effects
        ]
        lines.append(f"liking for the place shown first: {_words(self.position)}; choice depends on the order in "
                     f"{_words(self.order_bound)}")  # fmt: skip
        if not self.sound:
            lines.append("NOT SOUND: a placebo flips more than the base asked again.")
        return "\n".join(lines)


def _words(figure: Figure) -> str:
    return f"undefined ({figure.reason})" if figure.reason else str(figure)


@dataclass(frozen=True)
class _Answered:
    """One variant of one item, over the orders of its options."""

    mean: tuple[float, ...]
    choice: int | None
    first: float
    """Probability of the option shown first, minus that of an even choice; NaN with one order."""
    bound: bool
    """The orders differ in their choice."""


def report_probe(
    rows: Sequence[ProbeRow],
    variants: Mapping[tuple[str, str], bool],
    targets: Mapping[str, int | None],
    orders: Mapping[str, int],
    *,
    draws: int = 2000,
    seed: int = 0,
) -> ProbeReport:
    """Compare every variant with the base of the same item.

    Args:
        rows: Answers, in any order.
        variants: Factor and level to whether it is a placebo.
        targets: Item to the option that is followed.
        orders: Item to how many orders its options are shown in.
        draws: Bootstrap resamples of the items.
        seed: Of the resampling.
    """
    by: dict[tuple[str, str], dict[str, list[ProbeRow]]] = {}
    for row in rows:
        by.setdefault((row.factor, row.level), {}).setdefault(row.item, []).append(row)
    found = {
        variant: {item: _answered(items[item], orders[item]) for item in targets if item in items}
        for variant, items in by.items()
    }
    base, again = found.get((BASE, ""), {}), found.get((IDENTITY, ""), {})
    effects, shifts = [], {}
    for (factor, level), placebo in variants.items():
        answers = found.get((factor, level), {})
        shifts[factor, level] = _shifts(base, answers, targets)
        effects.append(
            _effect(factor, level, placebo, base, answers, again, targets, shifts[factor, level], (draws, seed))
        )
    settled = [one for one in base.values() if one and not math.isnan(one.first)]
    bound = wilson(sum(one.bound for one in settled), len(settled))
    return ProbeReport(
        tuple(effects), _liking(base.values(), draws, seed), _figure(bound, "no base item lists its options"), shifts
    )


def _answered(rows: Sequence[ProbeRow], orders: int) -> _Answered | None:
    """Average the orders; None unless all were answered."""
    by_order = {row.order: row.p for row in rows if row.p is not None}
    if len(by_order) < orders:
        return None
    table = np.array([by_order[order] for order in range(orders)])
    mean = table.mean(0)
    first = float(np.mean([table[order, order % table.shape[1]] for order in range(orders)]) - 1 / table.shape[1])
    choices = {_choice(row) for row in table}
    return _Answered(tuple(mean.tolist()), _choice(mean), first if orders > 1 else math.nan, len(choices) > 1)


def _choice(p: Floats) -> int | None:
    best = np.flatnonzero(p > p.max() - _TIE)
    return int(best[0]) if len(best) == 1 else None


def _shifts(
    base: Mapping[str, _Answered | None], answers: Mapping[str, _Answered | None], targets: Mapping[str, int | None]
) -> dict[str, float]:
    result = {}
    for item, after in answers.items():
        before, target = base.get(item), targets[item]
        if before and after and target is not None:
            result[item] = after.mean[target] - before.mean[target]
    return result


def _effect(
    factor: str,
    level: str,
    placebo: bool,
    base: Mapping[str, _Answered | None],
    answers: Mapping[str, _Answered | None],
    again: Mapping[str, _Answered | None],
    targets: Mapping[str, int | None],
    shifts: Mapping[str, float],
    resampling: tuple[int, int],
) -> VariantEffect:
    draws, seed = resampling
    pairs = {item: (one, two) for item, two in answers.items() if (one := base.get(item)) and two}
    chosen = {
        item: (one.choice, two.choice)
        for item, (one, two) in pairs.items()
        if one.choice is not None and two.choice is not None
    }
    flips = {item: before != after for item, (before, after) in chosen.items()}
    excess = [
        float(flip) - float(second.choice != chosen[item][0])
        for item, flip in flips.items()
        if (second := again.get(item)) and second.choice is not None
    ]
    followed = [(*pair, targets[item]) for item, pair in chosen.items() if targets[item] is not None]
    n, changed, missing, undecided = len(flips), sum(flips.values()), len(answers) - len(pairs), len(pairs) - len(flips)
    none = f"no item has a choice both times ({missing} without an answer, {undecided} undecided)"
    aimless = none if not n else "no item with a choice names a target"
    unmoved = "no item with a target was answered both times"
    moved = list(shifts.values())
    return VariantEffect(
        factor,
        level,
        placebo,
        len(answers),
        missing,
        undecided,
        flip=_figure(wilson(changed, n), none),
        hold=_figure(wilson(n - changed, n), none),
        toward=_figure(wilson(sum(a != t and b == t for a, b, t in followed), len(followed)), aimless),
        away=_figure(wilson(sum(a == t and b != t for a, b, t in followed), len(followed)), aimless),
        excess=_figure(paired_bootstrap(excess, draws=draws, seed=seed), none),
        contrast=_figure(paired_bootstrap(moved, draws=draws, seed=seed), unmoved),
        spread=_figure(bootstrap_mean(np.square(moved), draws=draws, seed=seed), unmoved),
        position=_liking([two for _, two in pairs.values()], draws, seed),
    )


def _liking(answers: Iterable[_Answered | None], draws: int, seed: int) -> Figure:
    values = [one.first for one in answers if one and not math.isnan(one.first)]
    return _figure(bootstrap_mean(values, draws=draws, seed=seed), "no answered item lists its options")
