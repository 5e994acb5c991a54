"""Where a role stands among the others in embedding space: margins of a text to what one role says of itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, get_args

import numpy as np

from rolecraft.measures._statistics import Floats
from rolecraft.measures._voice import lexicon
from rolecraft.roles import Inventory, Role, load_inventory

if TYPE_CHECKING:
    from rolecraft.models._base import FloatArray

Aspect = Literal["profile", "voice", "goals", "values"]
ASPECTS: tuple[Aspect, ...] = get_args(Aspect)
BACKGROUND = 64
"""Other roles a margin is taken against; the mean over more moves a margin by less than a hundredth."""


class TextEncoder(Protocol):
    """What the judge needs of an `Embedder`."""

    name: str
    revision: str

    def encode(self, texts: Sequence[str]) -> FloatArray:
        """Return one unit vector per text, shape (texts, size)."""
        ...


def aspect_texts(role: Role, aspect: Aspect) -> tuple[str, ...]:
    """Return what a role says of one aspect; the profile where it says nothing of it."""
    profile = (f"{role.name}. {role.description}",)
    said: dict[Aspect, tuple[str, ...]] = {
        "profile": profile,
        "voice": (*(shown.reply for shown in role.demonstrations), *role.catchphrases[:1]),
        "goals": (" ".join(role.goals),) if role.goals else (),
        "values": (" ".join(role.values),) if role.values else (),
    }
    return said[aspect] or profile


class RoleSpace:
    """Mean embeddings of the aspects of every role, made as they are needed.

    A margin is cos(text, role's own) less the mean of cos(text, another role's) over `BACKGROUND` other roles: the
    inventory's, in an order set by their ids' hashes, topped up from the bundled inventory where there are fewer.
    """

    def __init__(self, encoder: TextEncoder, inventory: Inventory) -> None:
        self._encoder = encoder
        self._roles = tuple(inventory)
        self._own: dict[tuple[str, Aspect], Floats] = {}
        self._contrasts: dict[str, Floats] = {}
        self._others: tuple[Role, ...] | None = None
        self._affect: Floats | None = None

    def vectors(self, texts: Sequence[str]) -> Floats:
        """Return unit vectors of some texts, shape (texts, size)."""
        return np.asarray(self._encoder.encode(list(texts)), dtype=float)

    def prepare(self, roles: Iterable[Role]) -> None:
        """Embed the texts of some roles and of the background in one pass."""
        wanted = {role.hash: role for role in (*roles, *self._background())}
        missing = {key: role for key, role in wanted.items() if (key, "profile") not in self._own}
        texts = {(key, aspect): aspect_texts(role, aspect) for key, role in missing.items() for aspect in ASPECTS}
        flat = [text for group in texts.values() for text in group]
        if not flat:
            return
        encoded, start = self.vectors(flat), 0
        for place, group in texts.items():
            self._own[place] = encoded[start : start + len(group)].mean(0)
            start += len(group)

    def margins(self, role: Role, vector: Floats) -> dict[Aspect, float]:
        """Return the margin of one text's unit vector per aspect, in [-2, 2]; `prepare` comes first."""
        if role.hash not in self._contrasts:
            others = [other.hash for other in self._background() if other.id != role.id][:BACKGROUND]
            self._contrasts[role.hash] = np.stack(
                [self._own[role.hash, a] - np.mean([self._own[other, a] for other in others], axis=0) for a in ASPECTS]
            )
        return dict(zip(ASPECTS, (self._contrasts[role.hash] @ vector).tolist(), strict=True))

    def affect(self, vectors: Floats) -> Floats:
        """Return valence and arousal of some texts, shape (texts, 2): projections on differences of mean anchors."""
        if self._affect is None:
            means = {pole: self.vectors(sentences).mean(0) for pole, sentences in lexicon().anchors.items()}
            self._affect = np.stack([means["positive"] - means["negative"], means["aroused"] - means["calm"]])
        return vectors @ self._affect.T

    def _background(self) -> tuple[Role, ...]:
        """One more than `BACKGROUND`, so that a role that is among them can be left out."""
        if self._others is None:
            pool = self._roles
            if len(pool) <= BACKGROUND:
                own = {role.id for role in pool}
                pool = (*pool, *_by_hash(role for role in load_inventory("core-v1") if role.id not in own))
            else:
                pool = _by_hash(pool)
            self._others = pool[: BACKGROUND + 1]
        return self._others


def _by_hash(roles: Iterable[Role]) -> tuple[Role, ...]:
    return tuple(sorted(roles, key=lambda role: hashlib.sha256(role.id.encode()).digest()))
