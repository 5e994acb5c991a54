"""Scoring a screen's answers: shards for a judge, and the rows they come back as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rolecraft.measures import JudgeItem, text_health
from rolecraft.models import LanguageModel
from rolecraft.roles import Inventory
from rolecraft.screening._answers import shared_model
from rolecraft.screening._grid import Cell
from rolecraft.screening._plan import Plan
from rolecraft.screening._screen import Outcome

if TYPE_CHECKING:
    from rolecraft.measures import Judge

SHARD = 256
"""Items per shard."""


@dataclass(frozen=True)
class ScoreShard:
    """Items to be judged."""

    keys: tuple[str, ...]
    items: tuple[JudgeItem, ...]


@dataclass(frozen=True)
class Scorer:
    """Judges shards; holds the judge, or in another process what it is built from."""

    judge: Judge | None
    name: str
    model: str
    """Model string of the policy, which the offline judge scores with."""
    inventory: Inventory | None

    def __call__(self, shard: ScoreShard) -> dict[str, dict[str, Any]]:
        """Return one row per key: `scores`, `features` and `note`."""
        judge = self.judge or self._shared()
        return {
            key: {"scores": dict(score.values), "features": dict(score.features), "note": score.note}
            for key, score in zip(shard.keys, judge.score(shard.items), strict=True)
        }

    def _shared(self) -> Judge:
        """Build the judge once per process."""
        if self.inventory is None:
            raise ValueError("a scorer without a judge needs the inventory to build one")
        key = (self.name, self.model, self.inventory.hash)
        if key not in _judges:
            # The coordinator has calibrated it before any shard was handed out.
            model = shared_model(self.model)
            _judges[key] = build_judge(self.name, model, self.inventory, allow_uncalibrated=True)
        return _judges[key]


_judges: dict[tuple[str, str, str], Judge] = {}


def build_judge(name: str, model: LanguageModel, inventory: Inventory, *, allow_uncalibrated: bool = False) -> Judge:
    """Build the judge that a configuration names.

    Args:
        name: `offline`, or the model string of an LLM judge.
        model: The policy's model, with which the offline judge scores likelihoods.
        inventory: The roles, against which the offline judge contrasts.
        allow_uncalibrated: Take an LLM judge as it is, without holding it against the labelled cases.

    Raises:
        UserError: If the model string is unknown.
        JudgeError: If an LLM judge fails its calibration.
    """
    from rolecraft.models import Embedder, load_model

    if name == "offline":
        from rolecraft.measures._offline import OfflineJudge

        return OfflineJudge(model, Embedder.load(), inventory)
    from rolecraft.measures import LLMJudge

    if allow_uncalibrated:
        return LLMJudge(load_model(name), allow_uncalibrated=True)
    return LLMJudge(load_model(name)).calibrated()


def score_key(cell: Cell) -> str:
    """Return the key of a cell's score: a baseline answer is scored once for every role."""
    return cell.key


def score_shards(cells: Sequence[Cell], answers: Mapping[str, dict[str, Any]], plan: Plan) -> list[ScoreShard]:
    """Cut cells into shards of whole (role, question) groups, which share the prompt they are judged under."""
    questions = {question.id: question.text for question in plan.questions}
    roles = {role.id: role for role in plan.inventory}
    ordered = sorted(cells, key=lambda cell: (plan.grid.roles.index(cell.role), cell.question))
    items = []
    for cell in ordered:
        reference = answers[Cell(cell.role, "prompted", 0.0, cell.question, cell.seed).answer_key]["answer"]
        items.append(
            JudgeItem(roles[cell.role], questions[cell.question], answers[cell.answer_key]["answer"], reference)
        )
    return [
        ScoreShard(
            tuple(score_key(cell) for cell in ordered[start : start + SHARD]), tuple(items[start : start + SHARD])
        )
        for start in range(0, len(ordered), SHARD)
    ]


def outcome(answer: Mapping[str, Any], score: Mapping[str, Any]) -> Outcome:
    """Join a stored answer with its stored score."""
    health = asdict(text_health(answer["answer"]))
    failed = bool(answer["note"])
    return Outcome(
        answer["answer"],
        {} if failed else score["scores"],
        unique_bigram_ratio=health["unique_bigram_ratio"],
        degenerate=health["degenerate"],
        leakage=health["leakage"],
        words=health["words"],
        perplexity=score["features"].get("perplexity"),
        note=answer["note"] or score["note"],
    )
