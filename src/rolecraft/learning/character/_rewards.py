"""The ten rewards of Character-R1 for one reply, their total, and their scaling per character (arXiv 2601.04611)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Any, Literal, get_args

import numpy as np

from rolecraft.agents import FocusTrace, FocusVariant, focus_prompt, read_focus
from rolecraft.errors import UserError, did_you_mean
from rolecraft.learning.character._cases import CharacterCase
from rolecraft.learning.credit import CCRN_WEIGHTS, ccrn_scale
from rolecraft.learning.credit._batch import Floats
from rolecraft.measures import bleu, overlap_tokens, token_overlap
from rolecraft.worlds import ReplyItem, ReplyTask

FocusScore = Literal["exact", "f1"]
"""How the set of labels is scored: 1 only if it is the gold set, or by the F1 of the two sets."""

COMPONENTS = tuple(CCRN_WEIGHTS)
"""Form, overlap with the reference (seven figures), labels, attributes."""
PARTS: Mapping[str, tuple[str, ...]] = {
    "format": ("format",),
    "focus": ("focus",),
    "focus_attr": ("focus_attr",),
    "reference": tuple(name for name in COMPONENTS if name.startswith(("bleu", "rouge"))),
}
"""The components by what they reward."""


@dataclass(frozen=True)
class RewardBreakdown:
    """What a reply was given, component by component."""

    raw: Mapping[str, float]
    """By component, each in [0, 1]."""
    total: float
    """Weighted mean of `scaled`, or of `raw` where there is none."""
    trace: FocusTrace
    scaled: Mapping[str, float] = field(default_factory=dict)
    """By component, after normalisation; empty: not normalised."""
    notes: tuple[str, ...] = ()
    """Overlap figures that are 0 by definition."""


@dataclass(frozen=True)
class GroupScale:
    """The running statistics of one component for one group of characters."""

    group: str
    component: str
    mean: float
    std: float
    n: int
    """Rows seen."""


def component_weights(without: Sequence[str] = ()) -> dict[str, float]:
    """Return Character-R1's weights with some parts set to 0.

    Args:
        without: Names of components, or of `PARTS`.

    Raises:
        UserError: If a name is unknown, or nothing is left.
    """
    weights = dict(CCRN_WEIGHTS)
    for name in without:
        if name not in PARTS and name not in weights:
            known = tuple(dict.fromkeys([*PARTS, *weights]))
            raise UserError(f"component {name!r} is unknown ({', '.join(known)}).{did_you_mean(name, known)}")
        weights.update(dict.fromkeys(PARTS.get(name, (name,)), 0.0))
    return checked_weights(weights)


def checked_weights(weights: Mapping[str, float]) -> dict[str, float]:
    """Return weights of all ten components, divided by their sum; 0 for those that are not named.

    Raises:
        UserError: If a name is unknown, a weight is negative or not finite, or all are 0.
    """
    for name, weight in weights.items():
        if name not in COMPONENTS:
            raise UserError(
                f"weights: there is no component {name!r} ({', '.join(COMPONENTS)}).{did_you_mean(name, COMPONENTS)}"
            )
        if not 0 <= weight < float("inf"):
            raise UserError(f"weights: the weight of {name!r} is {weight!r}; expected 0 or more.")
    whole = sum(weights.values())
    if not whole > 0:
        raise UserError("weights: no component has a weight above 0.")
    return {name: weights.get(name, 0.0) / whole for name in COMPONENTS}


def character_reward(
    reply: str,
    case: CharacterCase,
    weights: Mapping[str, float] = CCRN_WEIGHTS,
    *,
    focus: FocusScore = "exact",
) -> RewardBreakdown:
    """Score one reply; what it says is read, never obeyed.

    Args:
        reply: As the model wrote it.
        case: Its gold labels, attributes and reference.
        weights: By component; divided by their sum.
        focus: See `FocusScore`. The paper's is taken to be `exact`.

    Raises:
        UserError: If weights or the option are refused.
    """
    if focus not in get_args(FocusScore):
        raise UserError(f"focus is scored by 'exact' or 'f1', got {focus!r}.")
    shares = checked_weights(weights)
    trace = read_focus(reply)
    said = overlap_tokens(trace.reply, case.language)
    overlap = token_overlap(said, overlap_tokens(case.reference, case.language))
    figures = overlap.scores()
    figures["rougeL"] = figures.pop("rouge_l")
    figures |= {
        "format": float(trace.well_formed),
        "focus": focus_score(trace.labels, case.focus, focus),
        "focus_attr": attribute_score(trace, case),
    }
    raw = {name: figures[name] for name in COMPONENTS}
    return RewardBreakdown(raw, sum(shares[name] * raw[name] for name in COMPONENTS), trace, notes=overlap.notes)


def focus_score(named: frozenset[str], gold: Mapping[str, str], form: FocusScore = "exact") -> float:
    """Return how well the set of named labels fits the gold set, in [0, 1]."""
    wanted = frozenset(gold)
    if form == "exact":
        return float(named == wanted)
    return 2 * len(named & wanted) / (len(named) + len(wanted))


def attribute_score(trace: FocusTrace, case: CharacterCase) -> float:
    """Return the mean BLEU-1 of the attributes over the gold labels; a label that is not named counts 0."""
    scores = []
    for label, gold in case.focus.items():
        said = overlap_tokens(trace.attribute(label) or "", case.language)
        scores.append(bleu(said, overlap_tokens(gold, case.language), 1))
    return sum(scores) / len(scores)


def reward_columns(breakdowns: Sequence[RewardBreakdown]) -> dict[str, Floats]:
    """Return the raw rewards as columns of shape (N,), as `CreditBatch.objectives` takes them."""
    return {name: np.array([one.raw[name] for one in breakdowns], dtype=np.float64) for name in COMPONENTS}


def scale_rewards(
    breakdowns: Sequence[RewardBreakdown],
    groups: Sequence[str],
    state: Mapping[str, Any] | None = None,
    weights: Mapping[str, float] = CCRN_WEIGHTS,
    *,
    decay: float = 0.99,
) -> tuple[list[RewardBreakdown], dict[str, Any]]:
    """Normalise a batch of rewards by the running statistics of each group; see `ccrn_scale`.

    Args:
        breakdowns: N scored replies.
        groups: The group of characters (or the character) of each; one name for all gives the global normaliser.
        state: What the last call returned; None at the start.
        weights: By component; divided by their sum.
        decay: Of the running statistics.

    Returns:
        The breakdowns with `scaled` and a new `total`, and the state.

    Raises:
        UserError: If there is not one group per reply, or a reward is not finite.
    """
    if len(groups) != len(breakdowns):
        raise UserError(f"expected one group per reply, got {len(groups)} groups for {len(breakdowns)} replies.")
    shares = checked_weights(weights)
    scaled, state = ccrn_scale(reward_columns(breakdowns), list(groups), state, decay=decay)
    found = []
    for row, one in enumerate(breakdowns):
        values = {name: float(scaled[name][row]) for name in COMPONENTS}
        found.append(replace(one, scaled=values, total=sum(shares[name] * values[name] for name in COMPONENTS)))
    return found, state


def group_scales(state: Mapping[str, Any]) -> list[GroupScale]:
    """Return the running statistics of a normaliser as a table, one row per group and component."""
    return [
        GroupScale(group, component, entry["mean"], sqrt(entry["variance"]), entry["rows"])
        for group, table in state.items()
        for component, entry in table.items()
    ]


def character_task(
    cases: Sequence[CharacterCase],
    weights: Mapping[str, float] = CCRN_WEIGHTS,
    *,
    variant: FocusVariant = "examples",
    focus: FocusScore = "exact",
) -> ReplyTask:
    """Return the cases as a world: the speaker sees profile, form and talk, and is rewarded by `character_reward`.

    The ten components are the scores of its outcome; the reward is their weighted mean.

    Args:
        cases: Distinct ids. The seed of an episode picks one, in turn.
        weights: By component.
        variant: How the prompt shows the labels.
        focus: How the set of labels is scored.

    Raises:
        UserError: If there is no case, an id stands twice, or an option is refused.
    """
    by_id = {case.id: case for case in cases}

    def score(item: ReplyItem, reply: str) -> Mapping[str, float]:
        return character_reward(reply, by_id[item.id], weights, focus=focus).raw

    items = [ReplyItem(case.id, _as_text(case, variant), case.role.id) for case in cases]
    return ReplyTask(items, score, checked_weights(weights))


def _as_text(case: CharacterCase, variant: FocusVariant) -> str:
    system, *talk = focus_prompt(case.role, case.messages, variant)
    who = {"user": "User", "assistant": "You"}
    # One line per message: no text of the talk can pass for a message of its own.
    lines = [f"{who[message['role']]}: {' '.join(message['content'].split())}" for message in talk]
    return "\n".join([system["content"], "", *lines])
