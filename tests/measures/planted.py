"""Synthetic roles whose true alignment is known, and an encoder and a model without weights that can tell them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from rolecraft.measures import JudgeItem, RoleCase
from rolecraft.measures._health import words
from rolecraft.models._base import FloatArray
from rolecraft.roles import Inventory, Role

TRADES = {
    "sailor": "sail sloop rope tide anchor harbour deck gull storm mast",
    "baker": "bread oven dough flour yeast crust loaf butter knead rye",
    "miner": "coal shaft lamp pick seam dust cage tunnel ore props",
    "weaver": "loom thread shuttle wool warp cloth dye spindle linen pattern",
    "gardener": "rose spade compost hedge seed bulb prune soil beetle orchard",
    "smith": "anvil hammer forge iron horseshoe bellows tongs blade ember steel",
    "shepherd": "flock crook wool lamb ewe pasture fold collie hill shearing",
    "clockmaker": "gear spring pendulum dial escapement lens brass tick chime screw",
}
GENERIC = (
    "It depends on the situation, so many people compare several options, make a list and ask an expert for advice. "
    "Planning ahead can reduce stress and improve results."
)


class HashedWords:
    """Unit vectors of hashed words: texts that share words are near."""

    name, revision = "hashed-words", "1"

    def encode(self, texts: Sequence[str]) -> FloatArray:
        vectors = np.full((len(texts), 256), 1e-3, dtype=np.float32)
        for row, text in enumerate(texts):
            for word in words(text):
                vectors[row, zlib.crc32(word.encode()) % 256] += 1
        normed: FloatArray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return normed


def role(trade: str) -> Role:
    """Return a role whose texts are made of its trade's words."""
    own = TRADES[trade].split()
    return Role.model_validate(
        {
            "id": trade,
            "name": trade.capitalize(),
            "description": f"You work as a {trade} with {', '.join(own[:7])}.",
            "style": "Plain and short.",
            "goals": [f"a better {own[0]} and {own[1]}"],
            "values": [f"honest {own[2]} and {own[3]}"],
            "demonstrations": [
                {"user": "What now?", "reply": f"I mend my {own[4]}, and then I see to my {own[5]} and the {own[6]}."}
            ],
        }
    )


def inventory() -> Inventory:
    """Return one role per trade."""
    return Inventory("planted", "1", tuple(role(trade) for trade in TRADES))


def answers(trade: str) -> dict[int, str]:
    """Return one answer per label: broken, not, partly, fully in role."""
    a, b, c, d, e, f, g, h, i, j = TRADES[trade].split()
    return {
        0: f"{a} the {b} " * 12,
        1: GENERIC,
        2: f"It depends on the situation, so many people make a list. I would look at the {a} and the {b} as well.",
        3: f"I saw to my {a} at dawn, and my {b} was sound. We carried the {c} past the {d}, and I told them: my {e} "
        f"knows the {f} better than my {g}, and no {h} of mine ever feared a {i} or a {j}.",
    }


def cases() -> list[RoleCase]:
    """Return four labelled cases per role."""
    return [
        RoleCase(f"{own.id}-{label}", JudgeItem(own, "What does tomorrow bring?", text, answers(own.id)[3]), label)
        for own in inventory()
        for label, text in answers(own.id).items()
    ]
