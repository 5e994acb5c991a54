"""Raw features of an answer to a role: likelihoods, margins in embedding space, stance and words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from rolecraft.measures._health import text_health
from rolecraft.measures._judge import JudgeItem
from rolecraft.measures._role_space import ASPECTS, RoleSpace, TextEncoder, aspect_texts
from rolecraft.measures._statistics import Floats
from rolecraft.measures._voice import content_words, self_share, stance
from rolecraft.models._base import chat
from rolecraft.roles import Inventory, Role

if TYPE_CHECKING:
    from rolecraft.models._base import LanguageModel

MEASURED = (
    "contrast",
    "perplexity",
    "surprise",
    *(f"{aspect}_margin" for aspect in ASPECTS),
    "affect_closeness",
    "stance_closeness",
)
"""Features that a model or a reference is needed for; NaN where they cannot be had."""


def role_prompt(role: Role) -> str:
    """Return the system text under which the contrastive likelihood is taken: name and description, no more."""
    return f"You are a {role.name}. {role.description}"


class FeatureExtractor:
    """Computes features; likelihoods and embeddings are computed once per distinct text and remembered."""

    def __init__(self, model: LanguageModel, embedder: TextEncoder, inventory: Inventory) -> None:
        self._model = model
        self._space = RoleSpace(embedder, inventory)
        self._means: dict[tuple[str, str, str], float] = {}

    def __call__(self, items: Sequence[JudgeItem]) -> list[dict[str, Any]]:
        """Return the features of each item; see `OfflineJudge.details`."""
        filled = [item for item in items if item.answer.strip()]
        self._remember_likelihoods(filled)
        self._space.prepare(item.role for item in filled)
        usable = {item.reference for item in items if item.reference and not text_health(item.reference).degenerate}
        texts = list(dict.fromkeys([*(item.answer for item in filled), *sorted(usable)]))
        vectors = dict(zip(texts, self._space.vectors(texts), strict=True)) if texts else {}
        return [self._features(item, vectors, item.reference in usable) for item in items]

    def _remember_likelihoods(self, items: Sequence[JudgeItem]) -> None:
        """Score what is new in one call, so that the engine can put answers to one prompt together."""
        wanted = {
            (system, item.question, item.answer): None
            for item in items
            for system in ("", role_prompt(item.role))
            if (system, item.question, item.answer) not in self._means
        }
        keys = sorted(wanted)
        chats = [chat(question, system) for system, question, _ in keys]
        for key, values in zip(
            keys, self._model.logprobs(chats, [key[2] for key in keys]) if keys else [], strict=True
        ):
            self._means[key] = float(np.mean(values, dtype=float)) if len(values) else math.nan

    def _features(self, item: JudgeItem, vectors: dict[str, Floats], referenced: bool) -> dict[str, Any]:
        health = text_health(item.answer)
        features: dict[str, Any] = asdict(health) | {
            "self_share": self_share(item.answer),
            "no_leakage": float(not health.leakage),
            "lexical_overlap": _overlap(item, referenced),
        }
        vector = vectors.get(item.answer)
        features |= dict.fromkeys(MEASURED, math.nan)
        if vector is None:
            return features
        empty = self._means["", item.question, item.answer]
        in_role = self._means[role_prompt(item.role), item.question, item.answer]
        features |= {f"{aspect}_margin": value for aspect, value in self._space.margins(item.role, vector).items()}
        features |= {
            "contrast": in_role - empty,
            "perplexity": math.exp(min(700.0, -empty)),
            "surprise": -max(empty, in_role),
        }
        if referenced:
            affect = self._space.affect(np.stack([vector, vectors[item.reference]]))
            features["affect_closeness"] = -float(np.linalg.norm(affect[0] - affect[1]))
            features["stance_closeness"] = -float(np.abs(stance(item.answer) - stance(item.reference)).sum())
        return features


def _overlap(item: JudgeItem, referenced: bool) -> float:
    """Return the share of the answer's content words, the question's aside, that role or reference use, [0, 1]."""
    asked = content_words(item.question)
    said = content_words(item.answer) - asked
    role = item.role
    texts = [text for aspect in ASPECTS for text in aspect_texts(role, aspect)]
    known = content_words(" ".join([*texts, role.style, *role.catchphrases, *role.knowledge]))
    if referenced:
        known |= content_words(item.reference)
    return len(said & (known - asked)) / len(said) if said else 0.0
