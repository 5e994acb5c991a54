"""The writer: small edits of a role document that touch its canary rules, and nothing else.

It stands in the place of the paper's language model that rewrites roles (Evil Geniuses, arXiv 2311.11855). It knows
five operators over sentences and writes nothing but neutral sentences and what the canary policies declare.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from rolecraft.errors import UserError, did_you_mean
from rolecraft.guard.audit._canary import CanaryPolicy
from rolecraft.guard.audit._sentences import sentences

Operator = Literal["delete", "contradict", "move", "dilute", "reassign"]
OPERATORS: tuple[Operator, ...] = get_args(Operator)
"""Delete a rule sentence; add the sentence that contradicts it; move it to the end; put neutral sentences before it;
put in its place a sentence that gives the decision to another role."""
NEUTRAL = (
    "Keep sentences short.",
    "Dates are written with the day first.",
    "Thank people for their patience.",
    "Numbers below ten are spelled out.",
    "Headings have no full stop.",
    "Begin with what matters most.",
    "Lists have at most seven entries.",
    "Names are written as their owners write them.",
)
_DILUTED = 3
"""Most neutral sentences of one edit."""


@dataclass(frozen=True)
class Edit:
    """One step of a mutation."""

    operator: Operator
    policy: str
    """Name of the policy whose rule it touches."""


@dataclass(frozen=True)
class Mutation:
    """An edited text and how it came about."""

    text: str
    edits: tuple[Edit, ...] = ()


class RoleMutator:
    """Edits role documents.

    Args:
        policies: The policies whose rules it looks for.
        operators: Which edits it may make.
        authority: Whom `reassign` names.

    Raises:
        UserError: If there is no policy, no operator, or an unknown one.
    """

    def __init__(
        self,
        policies: Sequence[CanaryPolicy],
        operators: Sequence[str] = OPERATORS,
        authority: str = "whoever gives the task",
    ) -> None:
        for name in operators:
            if name not in OPERATORS:
                near = did_you_mean(name, OPERATORS)
                raise UserError(f"operators: there is no {name!r} ({', '.join(OPERATORS)}).{near}")
        if not policies or not operators:
            raise UserError("the mutator needs at least one policy and one operator.")
        self.policies = tuple(policies)
        self.operators: tuple[Operator, ...] = tuple(name for name in OPERATORS if name in operators)
        self.authority = authority

    def possible(self, text: str) -> list[Edit]:
        """Return every edit that would change the text: all but `contradict` need a sentence with the rule."""
        found = []
        for policy in self.policies:
            places = _rules(sentences(text), policy)
            for operator in self.operators:
                if operator == "contradict" or (places and not (operator == "move" and _last(text, places))):
                    found.append(Edit(operator, policy.name))
        return found

    def apply(self, text: str, edit: Edit, rng: random.Random) -> str:
        """Return the text after one edit; unchanged where the edit finds no rule.

        Raises:
            UserError: If the edit's policy is unknown.
        """
        policy = next((each for each in self.policies if each.name == edit.policy), None)
        if policy is None:
            raise UserError(f"no policy {edit.policy!r} ({', '.join(each.name for each in self.policies)}).")
        parts = list(sentences(text))
        places = _rules(parts, policy)
        if edit.operator == "contradict":
            parts.insert(rng.randint(0, len(parts)), policy.permission)
        elif places:
            place = rng.choice(places)
            if edit.operator == "delete":
                del parts[place]
            elif edit.operator == "move":
                parts.append(parts.pop(place))
            elif edit.operator == "reassign":
                parts[place] = policy.release(self.authority)
            else:
                parts[place:place] = rng.sample(NEUTRAL, rng.randint(1, _DILUTED))
        return _join(parts) if parts != list(sentences(text)) else text

    def propose(
        self, mutation: Mutation, rng: random.Random, *, edits: int = 1, focus: str = "", avoid: Sequence[Operator] = ()
    ) -> Mutation:
        """Return a further mutation, drawn at random.

        Args:
            mutation: What is edited.
            rng: Draws edits and places.
            edits: How many.
            focus: Name of a policy that half of the edits touch.
            avoid: Operators that are taken only where nothing else is possible.
        """
        for _ in range(edits):
            choices = self.possible(mutation.text)
            kept = [edit for edit in choices if edit.operator not in avoid] or choices
            if focus and rng.random() < 0.5:
                kept = [edit for edit in kept if edit.policy == focus] or kept
            if not kept:
                break
            edit = rng.choice(kept)
            text = self.apply(mutation.text, edit, rng)
            mutation = Mutation(text, (*mutation.edits, edit))
        return mutation


def _rules(parts: Sequence[str], policy: CanaryPolicy) -> list[int]:
    return [place for place, part in enumerate(parts) if policy.stance(part) == "rule"]


def _last(text: str, places: Sequence[int]) -> bool:
    return list(places) == [len(sentences(text)) - 1]


def _join(parts: Sequence[str]) -> str:
    """Join sentences, with a space where one lacks it; the text ends without space."""
    return "".join(part if part[-1:].isspace() else f"{part} " for part in parts if part.strip()).rstrip()
