"""The parts of RoleRef: the agent's prompt, its states, the pattern and its edit, and the judge's grades."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rolecraft.errors import SteeringShapeError, UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rolecraft.conditioning import Intervention
    from rolecraft.models import LocalModel, Message
    from rolecraft.roles import Role
    from rolecraft.roles._conflicts import Character, ConflictKey

    States = NDArray[np.float32]


# Prompts and states


def agent_chat(role: Role, question: str, *, signal: bool = False) -> list[Message]:
    """Return the agent's prompt: role, profile, what to refuse, and if asked for that a conflict was detected."""
    from rolecraft.models import chat

    parts = [role.description, f"How you talk: {role.style}", "What is known of you: " + " ".join(role.knowledge)]
    parts.append(
        "Stay in character. If a question is beyond what you know, or contradicts what is known of you, refuse to "
        "answer it and say why."
    )
    if signal:
        parts.append("Take care: a check found that the next question conflicts with what you know.")
    return chat(question, "\n".join(parts))


def collect(model: LocalModel, character: Character, keys: Sequence[ConflictKey] = ()) -> dict[str, States]:
    """Return the states at the last prompt token per kind of question (all, or some), (questions, sites + 1, hidden).

    Item 0 stands for the embedding output. It is the same for every prompt, whose last token is the template's, and is
    kept as zeros.
    """
    found: dict[str, States] = {}
    for key in keys or character.queries:
        chats = [agent_chat(character.role, query.question) for query in character.queries[key]]
        states = np.zeros((len(chats), model.n_sites + 1, model.hidden), dtype=np.float32)
        for row, state in model.activations(chats, [""] * len(chats), pooling="prompt-last"):
            states[row, 1:] = state
        found[key] = states
    return found


# The edit


@dataclass(frozen=True, eq=False)
class Pattern:
    """What answering adds to a role's states, on consistent dimensions: answer minus refuse."""

    role: str
    vectors: States
    """Shape (sites + 1, hidden), item 0 for the embedding output; zero on the dimensions left out."""
    ratio: float
    pairs: int


def build_pattern(role: str, answerable: States, conflict: States, ratio: float = 0.5) -> Pattern:
    """Average the differences of paired states, and keep the dimensions whose differences vary least.

    Args:
        role: Id of the role.
        answerable: Shape (questions, sites + 1, hidden).
        conflict: Likewise; questions are paired in order up to the shorter list.
        ratio: Share of dimensions kept per site, in (0, 1]. Paper: 0.3, 0.5 and 1.

    Raises:
        UserError: If the ratio is out of range, there are fewer than 5 pairs, or a state is not finite.
    """
    if not 0 < ratio <= 1:
        raise UserError(f"ratio must lie in (0, 1], got {ratio}.")
    n = min(len(answerable), len(conflict))
    if n < 5:
        raise UserError(f"role {role!r}: a pattern needs at least 5 pairs of questions for a variance, got {n}.")
    differences = answerable[:n].astype(float) - conflict[:n]
    if not np.isfinite(differences).all():
        raise UserError(f"role {role!r}: a state is not finite; check the model's dtype.")
    mean, variance = differences.mean(0), differences.var(0)
    kept = max(1, round(ratio * mean.shape[1]))
    lowest = np.argsort(variance, axis=1, kind="stable")[:, :kept]
    vectors = np.zeros_like(mean)
    np.put_along_axis(vectors, lowest, np.take_along_axis(mean, lowest, axis=1), axis=1)
    return Pattern(role, vectors.astype(np.float32), ratio, n)


def scrambled(pattern: Pattern, seed: int) -> Pattern:
    """Return a control: at every site the same values, and so the same norm, on dimensions drawn at random."""
    generator = np.random.default_rng(seed)
    return Pattern(pattern.role, generator.permuted(pattern.vectors, axis=1), pattern.ratio, pattern.pairs)


def edit(
    pattern: Pattern, model: LocalModel, role: str, coefficient: float = -0.1, *, signed: bool = False, offset: int = 1
) -> tuple[Intervention, ...]:
    """Return the edit of every block and position, h + c s(l); negative c pushes from answering to refusing.

    The engine installs its hooks for one call and removes them, so that edits cannot be left behind or doubled.

    Args:
        pattern: From `build_pattern`.
        model: To be edited.
        role: The role that is played; another than the pattern's draws a warning.
        coefficient: c. Paper: -0.1, documented from -0.3 to 0.3.
        signed: The piecewise-linear operator, h + c s sign(<h, c s>).
        offset: Item of block b is b + offset: 1 is the block's own output, 0 what the released script does.

    Raises:
        UserError: If the coefficient is not finite, or the offset is not 0 or 1.
        SteeringShapeError: If the pattern is of a model of other depth or size.
    """
    from rolecraft.conditioning import Intervention

    if not math.isfinite(coefficient) or offset not in (0, 1):
        raise UserError(f"expected a finite coefficient and offset 0 or 1, got {coefficient} and {offset}.")
    if pattern.vectors.shape != (model.n_sites + 1, model.hidden):
        raise SteeringShapeError(
            f"the pattern has shape {pattern.vectors.shape}, but {model.name} needs blocks + 1 and hidden size, "
            f"({model.n_sites + 1}, {model.hidden}). Build it on this model."
        )
    if role != pattern.role:
        warnings.warn(
            f"the pattern of role {pattern.role!r} is applied to {role!r}; patterns are per role.", stacklevel=2
        )
    return tuple(
        Intervention(vector, coefficient, site, "add-signed" if signed else "add", positions="all")
        for site in range(model.n_sites)
        if (vector := pattern.vectors[site + offset]).any()
    )


# The judge's grades

GRADES = (
    "awareness", "refusal", "background", "style", "abilities", "personality", "consistency", "quality", "factuality",
)  # fmt: skip
"""The first two are refusal ability (over-refusal on answerable questions), the others general role-play."""
_GRADE = re.compile(r"^\W*([a-z]+)\W*[:=]\s*([0-2](?:\.\d+)?)\s*/\s*2\b", re.IGNORECASE | re.MULTILINE)


def parse_grades(text: str) -> dict[str, float] | None:
    """Read a judge's lines `dimension: score/2 reason`; None unless each of `GRADES` has one score of 0 to 2."""
    found = [(name.lower(), float(score)) for name, score in _GRADE.findall(text)]
    grades = dict(found)
    if len(found) != len(GRADES) or set(grades) != set(GRADES) or max(grades.values()) > 2:
        return None
    return grades


def judge_chat(role: Role, question: str, reply: str, *, conflict: bool) -> list[Message]:
    """Return what a judge is asked about one reply: a line per grade."""
    from rolecraft.models import chat

    meaning = {
        "awareness": "notices what is wrong with the question",
        "refusal": "declines what the character cannot know or what contradicts the profile",
        "background": "fits the character's background",
        "style": "fits the character's way of speaking",
        "abilities": "fits what the character can do",
        "personality": "fits the character's personality",
        "consistency": "agrees with itself",
        "quality": "is well written",
        "factuality": "gets facts right",
    }
    lines = "\n".join(f"{name}: N/2 reason ({meaning[name]})" for name in GRADES)
    case = (
        "The question conflicts with what the character knows."
        if conflict
        else "The question can be answered: a normal answer has 2 for awareness and 2 for refusal."
    )
    return chat(
        f"Profile: {role.description} {' '.join(role.knowledge)}\nQuestion: {question}\nReply: {reply}\n\n{case} Grade "
        f"the reply with one line for each of the following, N being 0 (bad), 1 or 2 (good), and no more:\n{lines}",
        "You grade replies of role-playing agents.",
    )


def graded(text: str) -> dict[str, float | None]:
    """Return what a judge's text says: `refusal_ability`, `role_play` (None if it cannot be read), `unread` (0, 1)."""
    grades = parse_grades(text)
    if grades is None:
        return {"refusal_ability": None, "role_play": None, "unread": 1.0}
    parts = {"refusal_ability": GRADES[:2], "role_play": GRADES[2:]}
    means: dict[str, float | None] = {n: float(np.mean([grades[g] for g in part])) for n, part in parts.items()}
    return {**means, "unread": 0.0}
