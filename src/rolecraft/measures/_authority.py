"""How far an authority's title shifts a panel's verdict, and by which mechanism (after arXiv 2601.04790).

The paper's formulas were not available; those here are our own reading of its terms. Influence is a paired difference:
the panel with the title against the same panel with the title removed. Intervals are bootstrapped over items.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rolecraft.errors import UserError, did_you_mean
from rolecraft.measures._authority_chain import (
    CONTEXTS,
    MOST_SEATS,
    Context,
    PanelStart,
    context_of,
    estimate_rates,
    split_influence,
)
from rolecraft.measures._statistics import Floats, Interval, _expanded_tail, bootstrap_mean

CONTROL = "control"
"""Label of the panel whose authority has lost its title."""
SIDES = ("A1", "A2")
UNDEFINED = Interval(math.nan, math.nan, math.nan, 0)


@dataclass(frozen=True)
class PanelTalk:
    """One discussion as the measure needs it.

    A panel with two authorities is measured once for each, the other one counting as general.

    Raises:
        UserError: If the authority never speaks, or a stance is none of A1, tie, A2 and None.
    """

    item: str
    label: str
    """Type of the authority's title, or `CONTROL`."""
    authority: str
    """Its seat; in a control, the seat that lost the title."""
    said: tuple[tuple[str, str | None], ...]
    """Speaker and stance (A1, tie, A2, or None) of every turn."""
    verdict: str | None
    """Of the panel."""
    clear: bool = True
    """Whether the authority was to state a stance, or to hedge."""
    position: str | None = None
    """What the authority was given to hold; default: the first side that it takes."""

    def __post_init__(self) -> None:
        if self.authority not in self.speakers:
            raise UserError(f"talk on {self.item}: {self.authority!r} never speaks ({', '.join(self.speakers)} do).")
        for stance in [*(stance for _, stance in self.said), self.verdict]:
            if stance not in (*SIDES, "tie", None):
                raise UserError(f"talk on {self.item}: a stance is A1, tie, A2 or None, got {stance!r}.")
        if self.position not in (*SIDES, None):
            raise UserError(
                f"talk on {self.item}: a position is A1 or A2, or None if not given; got {self.position!r}."
            )

    @property
    def speakers(self) -> tuple[str, ...]:
        """Everyone, in order of their first turn."""
        return tuple(dict.fromkeys(agent for agent, _ in self.said))

    @property
    def held(self) -> str | None:
        """The position whose success is the authority's influence; None: it has none."""
        own = (stance for agent, stance in self.said if agent == self.authority and stance in SIDES)
        return self.position or next(own, None)

    @property
    def violated(self) -> bool:
        """Whether the authority was to be clear and never took a side."""
        return self.clear and not any(a == self.authority and stance in SIDES for a, stance in self.said)

    @property
    def unanimous(self) -> bool:
        """Whether all took the same side in their first turns, so that nothing could shift."""
        first = self.first()
        return len(set(first.values())) == 1 and None not in first.values()

    def first(self) -> dict[str, str | None]:
        """Return everyone's stance in its first turn."""
        return dict(reversed(self.said))

    def last(self) -> dict[str, str | None]:
        """Return everyone's stance in its last turn."""
        return dict(self.said)

    def steps(self) -> Iterator[tuple[str, str, str]]:
        """Yield speaker, stance and next stance, leaving out turns without a stance."""
        known: dict[str, str] = {}
        for agent, stance in self.said:
            if stance is not None:
                if agent in known:
                    yield agent, known[agent], stance
                known[agent] = stance

    def pressures(self) -> Iterator[tuple[Context, bool]]:
        """Yield the context of each turn between two sides, and whether the speaker changed.

        Turns are left out if the speaker, or anyone it should have heard, has no side then: a tie, or no stance.
        """
        known: dict[str, str | None] = dict.fromkeys(self.speakers)
        for agent, stance in self.said:
            own = known[agent]
            others = {other: side for other, side in known.items() if other != agent and side in SIDES}
            if own in SIDES and stance in SIDES and len(others) == len(known) - 1 > 1:
                heard = {other: str(side) for other, side in others.items()}
                yield context_of(agent, str(own), heard, self.authority), stance != own
            known[agent] = known[agent] if stance is None else stance

    def start(self) -> PanelStart | None:
        """Return where the chain begins; None if someone took no side in its first turn, or turns are not cyclic."""
        order, held = self.speakers, self.held
        n = len(order)
        cyclic = all(agent == order[turn % n] for turn, (agent, _) in enumerate(self.said))
        first = [self.first()[agent] for agent in order]
        if held not in SIDES or not cyclic or not 2 <= n <= MOST_SEATS or any(side not in SIDES for side in first):
            return None
        return PanelStart(n, len(self.said) - n, order.index(self.authority), tuple(side == held for side in first))


@dataclass(frozen=True)
class AuthorityEffect:
    """What one kind of title did; undefined figures are NaN, and `reasons` says why."""

    label: str
    clear: bool
    talks: int
    """With the title."""
    influence: Interval
    """P[verdict = the authority's position] with the title, minus without."""
    alignment: Interval
    """P[final = position] - P[first = position] of the general referees, minus the same without the title."""
    steadfast: Interval
    """P[the authority keeps its stance from turn to turn]."""
    steadfast_control: Interval
    """The same seat without the title."""
    flexibility: Interval
    """P[a general referee changes its stance from turn to turn], with the title in the room."""
    rates: Mapping[str, Interval]
    """h_auth, h_gen, c_auth, c_gen and drift; see `rolecraft.measures.PanelRates`."""
    modelled: Interval
    """Influence by the Markov model: the sum of the next two."""
    hold: Interval
    """Part that comes from the authority holding more firmly than a general referee."""
    switch: Interval
    """Part that comes from general referees changing towards it more readily than towards each other."""
    hold_share: Interval
    """hold / modelled; without bounds where the modelled influence may be 0."""
    counts: Mapping[str, int]
    """`unanimous`: talks left out of the rates; `violations`: clear talks whose authority took no side, left out of
    everything; `silent`: turns without a stance; `ties`; `unsettled`: talks that the chain cannot begin with."""
    reasons: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AuthorityReport:
    """The effects of all titles."""

    effects: tuple[AuthorityEffect, ...]
    clarity: Mapping[str, Interval]
    """By label: influence with a clear statement minus influence with a hedged one."""

    def effect(self, label: str, clear: bool = True) -> AuthorityEffect:
        """Return the effect of one title.

        Raises:
            UserError: If there were no such talks.
        """
        found = {(effect.label, effect.clear): effect for effect in self.effects}
        if (label, clear) not in found:
            known = list(dict.fromkeys(effect.label for effect in self.effects))
            stated = "clear" if clear else "hedged"
            raise UserError(f"no {stated} talks of {label!r} (labels: {', '.join(known)}).{did_you_mean(label, known)}")
        return found[label, clear]


def measure_authority(
    talks: Iterable[PanelTalk], *, control: str = CONTROL, draws: int = 2000, seed: int = 0
) -> AuthorityReport:
    """Measure what titles do.

    Args:
        talks: With titles and without; those on the same item and of the same clarity are compared. Talks with the
            answers shown in both orders belong under one item, so that a liking for the first answer cancels out.
        control: The label without a title.
        draws: Resamples of items.
        seed: Of the resampling.

    Raises:
        UserError: If there are no talks with a title, or none without.
    """
    groups: dict[tuple[str, bool], list[PanelTalk]] = {}
    for talk in talks:
        groups.setdefault((talk.label, talk.clear), []).append(talk)
    titled = [key for key in groups if key[0] != control]
    lacking = [clear for _, clear in titled if (control, clear) not in groups]
    if not titled or lacking:
        given = ", ".join(sorted({label for label, _ in groups})) or "none"
        which = f" that are {'clear' if lacking[0] else 'hedged'}" if lacking else ""
        raise UserError(
            f"expected talks with a title and talks labelled {control!r}{which}; labels given: {given}. "
            "Influence is a difference to the same panel without the title."
        )
    effects, gains = [], {}
    for label, clear in titled:
        against = groups[control, clear]
        gains[label, clear] = _item_gain(groups[label, clear], against, _won)
        effects.append(_effect(groups[label, clear], against, gains[label, clear], draws, seed))
    clarity = {
        label: _mean({item: gain - gains[label, False][item] for item, gain in gains[label, True].items()
                      if item in gains[label, False]}, draws, seed)
        for label in dict.fromkeys(label for label, _ in titled)
        if (label, True) in gains and (label, False) in gains
    }  # fmt: skip
    return AuthorityReport(tuple(effects), clarity)


def _won(talk: PanelTalk) -> float:
    return float(talk.verdict == talk.held)


def _aligned(talk: PanelTalk) -> float:
    first, last = talk.first(), talk.last()
    general = [agent for agent in talk.speakers if agent != talk.authority]
    return float(np.mean([(last[a] == talk.held) - (first[a] == talk.held) for a in general])) if general else math.nan


def _usable(talks: Sequence[PanelTalk]) -> list[PanelTalk]:
    return [talk for talk in talks if talk.held is not None and not talk.violated]


def _item_gain(titled: Sequence[PanelTalk], control: Sequence[PanelTalk], value: Any) -> dict[str, float]:
    """Return the mean difference of each item that both kinds of talks are on."""
    sums: list[dict[str, list[float]]] = [{}, {}]
    for side, talks in enumerate((titled, control)):
        for talk in _usable(talks):
            sums[side].setdefault(talk.item, []).append(value(talk))
    return {item: float(np.mean(got) - np.mean(sums[1][item])) for item, got in sums[0].items() if item in sums[1]}


def _mean(values: Mapping[str, float], draws: int, seed: int) -> Interval:
    return bootstrap_mean(list(values.values()), list(values), draws, seed)


def _kept(talks: Sequence[PanelTalk], authority: bool, changed: bool, draws: int, seed: int) -> Interval:
    """Return how often stances stay (or change) from turn to turn."""
    steps = [
        (talk.item, float((before != after) == changed))
        for talk in talks
        for agent, before, after in talk.steps()
        if (agent == talk.authority) == authority
    ]
    return bootstrap_mean([value for _, value in steps], [item for item, _ in steps], draws, seed)


def _effect(
    titled: Sequence[PanelTalk], control: Sequence[PanelTalk], gain: Mapping[str, float], draws: int, seed: int
) -> AuthorityEffect:
    used = _usable(titled)
    rates, parts, reasons = _decompose(used, draws, seed)
    influence = _mean(gain, draws, seed)
    if math.isnan(influence.estimate):
        reasons["influence"] = "no item has a talk with the title and one without in which the position is known"
    steadfast = _kept(used, True, False, draws, seed)
    if math.isnan(steadfast.estimate):
        reasons["steadfast"] = "the authority never has a stance on two turns"
    counts = Counter(
        unanimous=sum(talk.unanimous for talk in used),
        violations=sum(talk.violated for talk in titled),
        silent=sum(stance is None for talk in titled for _, stance in talk.said),
        ties=sum(stance == "tie" for talk in titled for _, stance in talk.said),
        unsettled=sum(talk.start() is None for talk in used),
    )
    modelled, hold, switch, share = parts
    return AuthorityEffect(
        label=titled[0].label,
        clear=titled[0].clear,
        talks=len(titled),
        influence=influence,
        alignment=_mean(_item_gain(titled, control, _aligned), draws, seed),
        steadfast=steadfast,
        steadfast_control=_kept(_usable(control), True, False, draws, seed),
        flexibility=_kept(used, False, True, draws, seed),
        rates=rates,
        modelled=modelled,
        hold=hold,
        switch=switch,
        hold_share=share,
        counts=counts,
        reasons=reasons,
    )


def _decompose(
    talks: Sequence[PanelTalk], draws: int, seed: int
) -> tuple[dict[str, Interval], tuple[Interval, ...], dict[str, str]]:
    """Return the rates, (modelled, hold, switch, hold share), and why what is undefined is so."""
    turns, changes, starts, placed = _count(talks)
    items, reasons = len(turns), {}
    if not starts or items < 2:
        reasons["modelled"] = f"{len(starts)} kinds of start on {items} items: the chain needs a start and two items"
        return dict.fromkeys(_RATES, UNDEFINED), (UNDEFINED,) * 4, reasons
    weights = np.vstack([
        np.ones(items), np.random.default_rng(seed).multinomial(items, np.full(items, 1 / items), size=draws)
    ])  # fmt: skip
    drawn = {context: weights @ turns[:, column] for column, context in enumerate(CONTEXTS)}
    moved = {context: weights @ changes[:, column] for column, context in enumerate(CONTEXTS)}
    rates = estimate_rates(drawn, moved)
    found = dict(zip(_RATES, rates.columns, strict=True))
    for name, context in _NEEDS.items():
        if math.isnan(found[name][0]):
            few = f"no turn on which a {context.speaker} speaker was pressed by {context.pressed}"
            reasons[name] = few if not drawn[context][0] else "general referees never gave way to all others"
    split = split_influence(rates, starts, weights @ placed)
    modelled, hold, switch = (_interval(part, items) for part in split)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = _interval(np.where(split.total == 0, np.nan, split.hold / split.total), items)
    if math.isnan(modelled.estimate):
        reasons["modelled"] = "a rate is undefined: " + ", ".join(name for name in _NEEDS if name in reasons)
    elif not modelled.excludes_zero:
        reasons["hold_share"] = "the modelled influence may be 0, and there is nothing to share out"
        share = Interval(share.estimate, math.nan, math.nan, items)
    return {name: _interval(values, items) for name, values in found.items()}, (modelled, hold, switch, share), reasons


_RATES = ("h_auth", "h_gen", "c_auth", "c_gen", "drift")
_NEEDS = {
    "h_gen": Context("gen", "all"), "c_auth": Context("gen", "auth"), "c_gen": Context("gen", "gen"),
    "h_auth": Context("auth", "all"),
}  # fmt: skip


def _count(talks: Sequence[PanelTalk]) -> tuple[Floats, Floats, list[PanelStart], Floats]:
    """Return turns and changes of shape (items, contexts), the starts, and talks of shape (items, starts)."""
    items = {item: row for row, item in enumerate(dict.fromkeys(talk.item for talk in talks))}
    begun = [talk.start() for talk in talks]
    starts = sorted({start for start in begun if start})
    turns, changes = np.zeros((2, len(items), len(CONTEXTS)))
    placed = np.zeros((len(items), len(starts)))
    for talk, start in zip(talks, begun, strict=True):
        row = items[talk.item]
        if start:
            placed[row, starts.index(start)] += 1
        for context, changed in () if talk.unanimous else talk.pressures():
            if context in CONTEXTS:
                turns[row, CONTEXTS.index(context)] += 1
                changes[row, CONTEXTS.index(context)] += changed
    return turns, changes, starts, placed


def _interval(values: Floats, units: int) -> Interval:
    """Return the first value with the quantiles of the others; no bounds if most of those are undefined."""
    rest = values[1:][np.isfinite(values[1:])]
    if not np.isfinite(values[0]) or len(rest) * 2 < len(values) - 1:
        return Interval(float(values[0]), math.nan, math.nan, units)
    tail = _expanded_tail(units, 0.95)
    low, high = np.quantile(rest, [tail, 1 - tail])
    return Interval(float(values[0]), float(low), float(high), units)
