"""What the study of a language model shows it: personas, what is said of the game, and the questions of beliefs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from rolecraft.errors import UserError
from rolecraft.models import Chat, chat
from rolecraft.roles import Role
from rolecraft.worlds import TrustGame
from rolecraft.worlds._trust_game import TRUSTOR, trust_payoffs

Context = Literal["none", "named", "rules", "role", "practice"]
"""What is said of the game before a belief is asked for, from nothing to a round that was played for practice."""

ATTRIBUTES: Mapping[str, tuple[str, str]] = {
    "trust": ("trust other people", "distrust other people"),
    "risk": ("like to take risks", "avoid every risk"),
    "altruism": ("gladly give to others", "keep things for themselves"),
    "reciprocity": ("always return a favour", "seldom return a favour"),
}
"""Trait to what people high and low in it do."""
_OWN: Mapping[str, tuple[str, str]] = {
    "trust": ("You trust other people.", "You distrust other people."),
    "risk": ("You like to take risks.", "You avoid every risk."),
    "altruism": ("You gladly give to others.", "You keep things for yourself."),
    "reciprocity": ("You always return a favour.", "You seldom return a favour."),
}
THEORY_WORDS = {"strong": (0.6, "a great deal"), "weak": (0.2, "a little")}
"""Strength of an imposed theory to the effect it states, as a share of the endowment, and the words for it."""
_ASKED = (
    "How many coins will this person send? Reply with one number from 0 to {endowment}.",
    "Give one number from 0 to {endowment}: the coins that this person is going to send.",
)
PHRASINGS = len(_ASKED)
SENT, BACK = 5, 7
"""The round that is shown as practice."""


def persona_text(role: Role, theory: str = "") -> str:
    """Return the system text of a persona: who it is, what it is like, and a theory if one is imposed.

    Raises:
        UserError: If the persona has none of the attributes.
    """
    own = [_OWN[name][0 if role.traits[name] > 0.5 else 1] for name in ATTRIBUTES if name in role.traits]
    if not own:
        raise UserError(f"role {role.id!r} has none of the traits {', '.join(ATTRIBUTES)}; give it some in 0..1.")
    return " ".join([role.description, *own, *([theory] if theory else [])])


def theory_text(attribute: str, direction: Literal["more", "less"], strength: str, endowment: int) -> tuple[str, float]:
    """Return a theory in words, and the effect that it states as a share of the endowment."""
    effect, words = THEORY_WORDS[strength]
    coins = round(effect * endowment)
    text = (
        f"In this game people who {ATTRIBUTES[attribute][0]} send {words} {direction} than people who "
        f"{ATTRIBUTES[attribute][1]}: about {coins} coins {direction}."
    )
    return text, effect if direction == "more" else -effect


def game_text(context: Context, game: TrustGame) -> str:
    """Return what is said of the game.

    Raises:
        UserError: If the context is unknown.
    """
    sends = f"has {game.endowment} coins and sends some of them, or none, to a stranger"
    texts = {"none": f"A person {sends}.", "named": f"A person plays the trust game: the person {sends}."}
    if context in texts:
        return texts[context]
    if context == "rules":
        return game.rules()
    if context == "role":
        return f"{game.rules()} This person is the {TRUSTOR}."
    if context == "practice":
        first, second = trust_payoffs(SENT, BACK, game.endowment, game.multiplier)
        return (
            f"{game.rules()} This person is the {TRUSTOR}. In a practice round of two others, {SENT} coins were "
            f"sent and {BACK} returned: the trustor had {first} in the end, the trustee {second}."
        )
    raise UserError(f"no context {context!r}; expected none, named, rules, role or practice.")


def outcome_chat(role: Role, context: Context, game: TrustGame, phrasing: int) -> Chat:
    """Ask how much a persona will send, of someone who does not play it."""
    about = f'A person was told: "{persona_text(role)}"'
    asked = _ASKED[phrasing].format(endowment=game.endowment)
    return chat(f"{about}\n{game_text(context, game)}\n{asked}")


def rating_chat(role: Role, attribute: str) -> Chat:
    """Ask how strongly a persona has an attribute, from 1 to 7; no game is mentioned."""
    high, low = ATTRIBUTES[attribute]
    return chat(
        f'A person was told: "{persona_text(role)}"\nWhere does this person stand between people who {low} (1) and '
        f"people who {high} (7)? Reply with one number from 1 to 7."
    )


def average_chat(attribute: str, high: bool, context: Context, game: TrustGame, phrasing: int) -> Chat:
    """Ask what the average person high or low in an attribute sends."""
    about = f"Think of the average of all people who {ATTRIBUTES[attribute][0 if high else 1]}, as this person is."
    return chat(f"{about}\n{game_text(context, game)}\n{_ASKED[phrasing].format(endowment=game.endowment)}")


def forecast_chat(role: Role, past: Sequence[tuple[int, int]], about: int, game: TrustGame) -> Chat:
    """Ask, after some rounds, what a persona will send in a later one, counted from 1."""
    rounds = " ".join(
        f"Round {number}: this person sent {sent}, {returned} came back."
        for number, (sent, returned) in enumerate(past, 1)
    )
    return chat(
        f'A person was told: "{persona_text(role)}"\n{game.rules()} This person is the {TRUSTOR}.\n{rounds}\n'
        f"How many coins will this person send in round {about}? Reply with one number from 0 to {game.endowment}."
    )
