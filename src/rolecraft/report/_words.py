"""The report's words: verdicts, reasons with what to do about them, and numbers as they are printed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

VERDICTS = ("PASS", "PASS_PROMPT_ONLY", "FLAG")
"""In the order in which roles are listed."""

LABELS = {"PASS": "steers", "PASS_PROMPT_ONLY": "prompt only", "FLAG": "flagged"}

ARMS = {
    "role": "role's own direction",
    "axis": "assistant axis",
    "random": "random direction",
    "shuffled": "another role's direction",
    "baseline": "unsteered",
    "prompted": "prompted",
}

DIMENSIONS = {
    "overall": "Overall alignment",
    "emotional_register": "Emotional register",
    "vocabulary_choice": "Vocabulary choice",
    "social_dynamic": "Social dynamic",
    "motivation": "Motivation",
    "worldview_alignment": "Worldview alignment",
}

STAGES = {
    "directions": "Extract directions",
    "answers": "Generate answers",
    "scores0": "Judge",
    "scores1": "Second judge",
}

MISSING = "–"


@dataclass(frozen=True)
class Reason:
    """Why a role did not pass by steering, and what its owner can do."""

    code: str
    title: str
    meaning: str
    remedy: str


_REASONS = (
    Reason(
        "missing_scores",
        "Too many answers without a score",
        "The judge gave no usable score for more of this role's answers than the rule allows, so nothing is decided.",
        "Look for failed answers among the notes; then run again with --resume, or with another --judge.",
    ),
    Reason(
        "anti_controllable",
        "Anti-controllable: falls as strength grows",
        "On all six dimensions: the more of the role's direction is added, the less the answers are like the role."
        " Roles close to the model's default voice often behave this way: they begin near their ceiling.",
        "Try strengths below the smallest one, or leave the model unsteered; do not steer this role harder.",
    ),
    Reason(
        "not_steered",
        "No direction to steer with",
        "No direction could be extracted, so that only the prompt was tried.",
        "Give the role instructions and questions, or loosen --accept.",
    ),
    Reason(
        "not_scored",
        "Not scored",
        "The best strength or the unsteered baseline has no score to compare.",
        "Run again with --resume.",
    ),
    Reason(
        "repetitive",
        "Repetitive text",
        "Too few of the word pairs in the answers are distinct: the text has begun to loop.",
        "Use smaller --strengths; looping text is the first sign of over-steering.",
    ),
    Reason(
        "degenerate",
        "Degenerate text",
        "Too many answers are broken: looping, empty, or running on without end.",
        "Use smaller --strengths.",
    ),
    Reason(
        "leakage",
        "The assistant shows through",
        "Too many answers hold an assistant's phrases (such as speaking of itself as an AI).",
        "Try a larger strength, or extract with more of the role's instructions (--instructions).",
    ),
    Reason(
        "below_threshold",
        "Below the least alignment asked for",
        "The best strength's mean overall alignment is under the threshold of the rule.",
        "Extend --strengths, extract from more pairs, or lower the threshold if this much is enough for your use.",
    ),
    Reason(
        "no_gain_over_baseline",
        "No clear gain over the unsteered model",
        "The lower end of the gain's interval does not lie above zero.",
        "Ask more --questions to narrow the interval; if the curve is flat, play this role by prompt.",
    ),
    Reason(
        "judges_disagree",
        "The judges disagree",
        "The second judge sees no gain at the strength that the first one chose.",
        "Read the answers below; calibrate both judges before trusting either.",
    ),
    Reason(
        "too_few_pairs",
        "Too few pairs of responses were kept",
        "The filter accepted too few pairs in which the prompted response plays the role and the other does not.",
        "Give the role more questions and instructions, or loosen --accept.",
    ),
    Reason(
        "zero",
        "The direction is zero",
        "Prompted and base responses left the same mean activations.",
        "Check that the role's instructions change the answers at all.",
    ),
    Reason(
        "non_finite",
        "The direction is not finite",
        "The model's activations overflowed.",
        "Run in float32.",
    ),
)
REASONS = {reason.code: reason for reason in _REASONS}
_CONTROL, _DECLINE = "no_gain_over_", "declines_"


def explain(part: str) -> Reason:
    """Explain one entry of a verdict's `failed`: a reason code, a code with detail after a colon, or plain words."""
    code, _, detail = (text.strip() for text in part.partition(":"))
    if code in REASONS:
        known = REASONS[code]
        return Reason(code, known.title, f"{known.meaning} {detail}".strip(), known.remedy)
    return Reason(
        code, "Could not be steered", part.strip().rstrip(".") + ".", "Complete the role's profile and run again."
    )


def split_reasons(failed: str) -> list[Reason]:
    """Explain a verdict's `failed`: each code once, the controls together and the declining dimensions together.

    A note after a code may itself hold semicolons.
    """
    parts: list[str] = []
    for part in failed.split("; "):
        if parts and not _is_code(part.partition(":")[0].strip()):
            parts[-1] += f"; {part}"
        elif part.strip():
            parts.append(part)
    parts = list(dict.fromkeys(parts))
    alone = [part for part in parts if part in REASONS or not part.startswith((_CONTROL, _DECLINE))]
    reasons = [explain(part) for part in alone]
    controls = [part.removeprefix(_CONTROL) for part in parts if part.startswith(_CONTROL) and part not in alone]
    declining = [part.removeprefix(_DECLINE) for part in parts if part.startswith(_DECLINE)]
    if controls:
        reasons.append(_level_with(controls))
    if declining:
        reasons.append(_declining(declining))
    return reasons


def _is_code(word: str) -> bool:
    return word in REASONS or word.startswith((_CONTROL, _DECLINE))


def _level_with(controls: Sequence[str]) -> Reason:
    listed = ", ".join(ARMS.get(arm, arm) for arm in controls)
    return Reason(
        "no_gain_over_control",
        f"Not clearly better than {'a control' if len(controls) == 1 else 'controls'}: {listed}",
        "At the same strength and norm a control does as well, within the interval: what was gained may come from the"
        " push, not from where it points.",
        "Ask more --questions, or extract from more pairs to sharpen the direction.",
    )


def _declining(dimensions: Sequence[str]) -> Reason:
    every = len(dimensions) == len(DIMENSIONS)
    listed = "all six dimensions" if every else ", ".join(DIMENSIONS.get(name, name).lower() for name in dimensions)
    return Reason(
        "declines",
        f"Falls below the unsteered model: {listed}",
        "The upper end of the interval lies under zero at the best strength.",
        "Try strengths under the smallest one." if every else "Prefer a smaller strength that no dimension pays for.",
    )


def seeds_text(verdicts: str) -> str:
    """Print the verdicts of the seeds, such as `PASS(1.5), FLAG`, in the report's words."""
    words = []
    for verdict in verdicts.split(", "):
        name, _, strength = verdict.rstrip(")").partition("(")
        words.append(LABELS.get(name, name) + (f" at {strength}" if strength else ""))
    return ", ".join(words)


def headline(counts: Mapping[str, int]) -> str:
    """Say in one plain sentence what the screen found.

    Args:
        counts: Verdict to number of roles.
    """
    total = sum(counts.values())
    steered, prompted, flagged = (counts.get(verdict, 0) for verdict in VERDICTS)
    if not total:
        return "No role has been decided yet."
    if total == 1:
        found = "passes by steering" if steered else "passes only by prompt" if prompted else "is flagged"
        return f"The one role {found}."
    if steered == total:
        return f"All {total} roles pass by steering."
    found = f"{steered or 'None'} of {total} roles {'passes' if steered == 1 else 'pass'} by steering"
    others = []
    if prompted:
        others.append(f"{prompted} only by prompt")
    if flagged:
        others.append(f"{flagged} {'is' if flagged == 1 else 'are'} flagged")
    return f"{found}{',' if prompted else ';'} {', and '.join(others)}."


def finite(value: object) -> float | None:
    """Return a number, or None where it is missing or not finite."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = float(value)  # type: ignore[arg-type]  # anything that is no number is refused below
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def number(value: object, digits: int = 1) -> str:
    """Print a number with a true minus sign, a dash where it is missing."""
    found = finite(value)
    return MISSING if found is None else f"{_unsigned_zero(found, digits):.{digits}f}".replace("-", "−")


def signed(value: object, digits: int = 1) -> str:
    """Print a difference with its sign."""
    found = finite(value)
    if found is None:
        return MISSING
    rounded = _unsigned_zero(found, digits)
    return f"{rounded:+.{digits}f}".replace("-", "−") if rounded else f"{rounded:.{digits}f}"


def interval(low: object, high: object, digits: int = 1) -> str:
    """Print the bounds of an interval, nothing where there is none."""
    bounds = [number(value, digits) for value in (low, high)]
    return "" if MISSING in bounds else f"[{bounds[0]}, {bounds[1]}]"


def strength_text(value: object) -> str:
    """Print a strength as it is given on the command line."""
    found = finite(value)
    return MISSING if found is None else f"{found:g}".replace("-", "−")


def percent(value: object) -> str:
    """Print a share of one."""
    found = finite(value)
    return MISSING if found is None else f"{found:.0%}"


def duration(seconds: float) -> str:
    """Print a time span in the unit a person would use."""
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def _unsigned_zero(value: float, digits: int) -> float:
    return round(value, digits) + 0.0
