"""The offline judge: embeddings, contrastive likelihood and lexical features; deterministic and without a server."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rolecraft.measures._calibration import agreement_report
from rolecraft.measures._cases import FULLY, PARTLY, RoleCase, load_cases, unsteered_items
from rolecraft.measures._features import FeatureExtractor
from rolecraft.measures._fit import (
    CLOSENESS,
    Labelled,
    OfflineFit,
    bundled_fit,
    cross_validate,
    fit_coefficients,
)
from rolecraft.measures._judge import DIMENSIONS, STYLE, JudgeItem, Score
from rolecraft.measures._role_space import TextEncoder
from rolecraft.measures._statistics import auc
from rolecraft.measures._voice import lexicon
from rolecraft.roles import Inventory, Role, load_inventory

if TYPE_CHECKING:
    from rolecraft.models._base import LanguageModel


class OfflineJudge:
    """Scores answers by what can be computed from them; the same items give the same scores, in any order.

    (Up to the rounding of the likelihoods: in bfloat16, batches of another make-up or another number of threads move a
    single overall score by up to about 4 of 100.)

    *overall* is the product of three logistic curves fitted to labelled cases: the soundness of the text; manner,
    whether someone speaks in a role at all (contrastive likelihood: mean log p per token under the role's name and
    description, less that under an empty system text; share of self reference; absence of the assistant's phrases);
    and identity, whether it is this role rather than another (contrastive likelihood; embedding margins to the role's
    profile and demonstrated voice over other roles'), which lowers the score where it is in doubt.

    The other five dimensions say what share of unsteered answers would be less close to the prompted reference
    (emotional register: affect; vocabulary choice: words of role and reference, demonstrated voice; social dynamic:
    stance towards the listener), or to what the role says of its goals (motivation) and values (worldview): 50 is as
    close as the embedded model's usual unsteered answer. All six are multiplied by the soundness of the text, so that
    broken text scores low whatever words it repeats.

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
                to the bundled cases with these, made when first needed (480 likelihoods).
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
            reference `affect_closeness` and `stance_closeness` (NaN without a usable one).
            Likelihoods and margins of an empty answer are NaN.
        """
        return self._extract(items)

    def _score(self, item: JudgeItem, features: dict[str, Any]) -> Score:
        if not item.answer.strip():
            return Score(dict.fromkeys(DIMENSIONS, 0.0), "empty answer", _finite(features))
        if not math.isfinite(features["contrast"]):
            return Score(dict.fromkeys(DIMENSIONS), "no finite likelihood", _finite(features))
        fit, values = self.fit, dict[str, float | None]()
        soundness, referenced = fit.soundness(features), math.isfinite(features["affect_closeness"])
        values["overall"] = fit.overall(features)
        for name in CLOSENESS:
            values[name] = None if name in STYLE and not referenced else 100 * soundness * fit.closeness(name, features)
        notes = ["degenerate text"] if features["degenerate"] else []
        if not referenced:
            notes.append("degenerate reference" if item.reference else "no reference")
        return Score(values, "; ".join(notes), _finite(features))


def _finite(features: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in features.items() if math.isfinite(value)}


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
    extract = FeatureExtractor(model, embedder, load_inventory("core-v1"))
    others = _mistaken(cases)
    data = Labelled(
        features=extract([case.item for case in cases]),
        labels=[case.label for case in cases],
        roles=[case.item.role.id for case in cases],
        mistaken=extract([item for _, item in others]),
        mistaken_roles=[(speaker, item.role.id) for speaker, item in others],
        unsteered=extract(unsteered_items()),
    )
    made_with = {
        "model": model.name,
        "revision": model.revision,
        "embedder": embedder.name,
        "embedder_revision": embedder.revision,
    }
    own, mistaken = cross_validate(data)
    in_role = [score for score, label in zip(own, data.labels, strict=True) if label == FULLY]
    taken = [score for score, (case, _) in zip(mistaken, _spoken(cases), strict=True) if case.label == FULLY]
    specificity = {"specificity_auc": auc(in_role, taken), "mean_mistaken": sum(taken) / len(taken)}
    held_out = {
        name: float(f"{value:.6g}") for name, value in (agreement_report(own, data.labels) | specificity).items()
    }
    return replace(fit_coefficients(data, made_with), out_of_sample=held_out)


def _spoken(cases: Sequence[RoleCase]) -> list[tuple[RoleCase, Role]]:
    """Pair each case that is in role, partly or fully, with two other roles of the cases."""
    roles = list({case.item.role.id: case.item.role for case in cases}.values())
    place = {role.id: number for number, role in enumerate(roles)}
    steps = {max(1, len(roles) // 4), max(1, len(roles) // 2)}
    return [
        (case, roles[(place[case.item.role.id] + step) % len(roles)])
        for case in cases
        if case.label in (PARTLY, FULLY)
        for step in sorted(steps)
    ]


def _mistaken(cases: Sequence[RoleCase]) -> list[tuple[str, JudgeItem]]:
    """Return the answers of `_spoken`, each with the id of the role that spoke, judged as the other role's."""
    return [(case.item.role.id, replace(case.item, role=other)) for case, other in _spoken(cases)]
