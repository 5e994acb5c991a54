"""The offline judge: embeddings, contrastive likelihood and lexical features; deterministic and without a server."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rolecraft.measures._calibration import agreement_report
from rolecraft.measures._cases import RoleCase, load_cases, unsteered_items
from rolecraft.measures._features import FeatureExtractor
from rolecraft.measures._fit import (
    CLOSENESS,
    OfflineFit,
    bundled_fit,
    cross_validate,
    fit_coefficients,
    overall_score,
)
from rolecraft.measures._judge import DIMENSIONS, STYLE, JudgeItem, Score
from rolecraft.measures._role_space import TextEncoder
from rolecraft.measures._voice import lexicon
from rolecraft.roles import Inventory, load_inventory

if TYPE_CHECKING:
    from rolecraft.models._base import LanguageModel


class OfflineJudge:
    """Scores answers by what can be computed from them; the same items give the same scores, in any order.

    *overall* is a logistic curve, fitted to labelled cases, over the contrastive likelihood (mean log p per token under
    the role's name and description, less that under an empty system text), the embedding margins to the role's profile
    and to its demonstrated voice over other roles', the share of self reference and the absence of the assistant's
    phrases.
    The other five dimensions say what share of unsteered answers would be less close to the prompted reference
    (emotional register: affect; vocabulary choice: words of role and reference; social dynamic: stance towards the
    listener) or to what the role says of its goals (motivation) and values (worldview): 50 is as close as the embedded
    model's usual unsteered answer. All six are multiplied by the soundness of the text, so that broken text scores low
    whatever words it repeats.

    Style needs a reference: without one, or with a degenerate one, those dimensions are missing. An empty answer
    scores 0.
    """

    dimensions = DIMENSIONS

    def __init__(
        self, model: LanguageModel, embedder: TextEncoder, inventory: Inventory, fit: OfflineFit | None = None
    ) -> None:
        """Make a judge.

        Args:
            model: Unsteered model that gives the likelihoods.
            embedder: Sentence embeddings, unit norm.
            inventory: All roles the judged ones are told apart from (the whole inventory, not a selection).
            fit: Coefficients; default: the bundled ones if they were made with this model and embedder, or else a fit
                to the bundled cases with these, made when first needed (192 likelihoods).
        """
        self._model, self._embedder = model, embedder
        self._inventory = inventory
        self._extract = FeatureExtractor(model, embedder, inventory)
        self._fit = fit or _matching_fit(model, embedder)

    @property
    def name(self) -> str:
        """Kind of judge and what it runs on."""
        return f"offline({self._model.name}, {self._embedder.name})"

    @property
    def fit(self) -> OfflineFit:
        """The coefficients in use."""
        if self._fit is None:
            self._fit = fit_offline_judge(self._model, self._embedder)
        return self._fit

    @property
    def rubric_hash(self) -> str:
        """Content hash of coefficients, word lists, models and inventory."""
        parts = (self.fit.hash, lexicon().version, self._model.revision, self._embedder.revision, self._inventory.hash)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    def score(self, items: Sequence[JudgeItem]) -> list[Score]:
        """Score each item on the six dimensions."""
        return [self._score(item, row) for item, row in zip(items, self.details(items), strict=True)]

    def details(self, items: Sequence[JudgeItem]) -> list[dict[str, Any]]:
        """Return the raw features of each item; likelihoods and embeddings are computed once and remembered.

        Returns:
            Per item the fields of `TextHealth`, `contrast` (nats per token), `perplexity` (under the empty system
            text), `surprise` (the lower of the two mean negative log-likelihoods), `profile_margin`, `voice_margin`,
            `goals_margin`, `values_margin`, `self_share`, `no_leakage` (1 or 0), `lexical_overlap`, and against the
            reference `affect_closeness`, `stance_closeness`, `reference_similarity` (NaN without a usable one).
            Likelihoods and margins of an empty answer are NaN.
        """
        return self._extract(items)

    def _score(self, item: JudgeItem, features: dict[str, Any]) -> Score:
        if not item.answer.strip():
            return Score(dict.fromkeys(DIMENSIONS, 0.0), "empty answer")
        if not math.isfinite(features["contrast"]):
            return Score(dict.fromkeys(DIMENSIONS), "no finite likelihood")
        fit, values = self.fit, dict[str, float | None]()
        soundness = fit.soundness(features)
        values["overall"] = overall_score(fit, features)
        for name in CLOSENESS:
            missing = any(math.isnan(features[feature]) for feature in CLOSENESS[name])
            values[name] = None if missing else 100 * soundness * fit.closeness(name, features)
        notes = ["degenerate text"] if features["degenerate"] else []
        if any(values[name] is None for name in STYLE):
            notes.append("degenerate reference" if item.reference else "no reference")
        return Score(values, "; ".join(notes))


def _matching_fit(model: LanguageModel, embedder: TextEncoder) -> OfflineFit | None:
    fit = bundled_fit()
    same = (fit.made_with["revision"], fit.made_with["embedder_revision"]) == (model.revision, embedder.revision)
    return fit if same else None


def fit_offline_judge(
    model: LanguageModel, embedder: TextEncoder, cases: Sequence[RoleCase] | None = None
) -> OfflineFit:
    """Fit the offline judge's coefficients to labelled cases, and measure them with roles left out.

    Args:
        model: Unsteered model that gives the likelihoods.
        embedder: Sentence embeddings.
        cases: Labelled answers; default: the bundled 96.
    """
    cases = cases or load_cases()
    inventory = load_inventory("core-v1")
    extract = FeatureExtractor(model, embedder, inventory)
    features = extract([case.item for case in cases])
    unsteered = extract(unsteered_items(inventory))
    labels = [case.label for case in cases]
    fit = fit_coefficients(
        features,
        labels,
        unsteered,
        {
            "model": model.name,
            "revision": model.revision,
            "embedder": embedder.name,
            "embedder_revision": embedder.revision,
        },
    )
    scores = cross_validate(features, labels, [case.item.role.id for case in cases], unsteered)
    return replace(fit, out_of_sample=agreement_report(scores, labels))
