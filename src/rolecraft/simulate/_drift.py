"""The drift watch: does what an agent says still lie on its role's direction, and what follows when it does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from rolecraft._run import RunStore
from rolecraft.conditioning import Direction, Extraction, ReadableModel, random_direction
from rolecraft.errors import UserError
from rolecraft.measures import Judge, JudgeItem
from rolecraft.models import LanguageModel, chat
from rolecraft.screening._grid import Cell

if TYPE_CHECKING:
    from rolecraft.screening import Admission

DriftAction = Literal["none", "re-prompt", "re-steer", "cap", "retire"]
Reference = tuple[float, float, int]
"""Mean, standard deviation and number of readings of an agent in its role."""
READ_UNDER = chat("")
"""What is read is what was said alone: under no role, no steering and no observation."""


class DriftRule(BaseModel):
    """When an agent counts as drifted, and what is done then.

    A reading is *low* below the one-sided prediction limit `mean - t sd sqrt(1 + 1/n)` of its reference, with t the
    `level` quantile of Student's distribution at n - 1 degrees of freedom. `patience` low readings in a row are drift;
    as many in a row that are not low end it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    action: DriftAction = "re-prompt"
    """From the next decision on, until the drift ends. `re-prompt`: the role's own prompt stands again behind the
    observation. `re-steer`: the direction is applied by `factor` times the locked strength. `cap`: its projection is
    held above the limit while the agent speaks. `retire`, for good: it is not asked any more. A role without a
    direction, or by prompt where a factor is asked for, is prompted again instead."""
    factor: float = Field(default=1.5, gt=0)
    reference: Literal["first-turns", "screen"] = "first-turns"
    """What is normal: the agent's own first `warmup` readings, or the answers of its role in the run that screened it,
    which is read from the folder of the lock."""
    warmup: int = Field(default=4, ge=2)
    level: float = Field(default=0.99, gt=0.5, lt=1)
    patience: int = Field(default=2, ge=1)
    every: int = Field(default=1, ge=1)
    """Read every so many messages of an agent."""
    judge: str = ""
    """`offline`, or the model string of an LLM judge: scores the messages too, and decides for roles without a
    direction."""
    allow_uncalibrated: bool = False
    arms: tuple[str, ...] = ()
    """The arms that are watched; default: all that put roles on."""


def advance(
    rule: DriftRule, state: Mapping[str, Any] | None, value: float | None, reference: Reference | None = None
) -> dict[str, Any]:
    """Return the state of one series after one more reading.

    Args:
        rule: What counts as drift.
        state: What this returned before; None at the start.
        value: The reading; None where there is none, which leaves the state as it is.
        reference: The screen's; None takes the first readings.

    Returns:
        `first`: readings so far, while the reference is being gathered; then `limit`, `low` and `high` (readings in a
        row on either side of it), `drifted`, and `alarms` (how often drift has begun).
    """
    found = dict(state or {"first": [], "limit": None, "low": 0, "high": 0, "drifted": False, "alarms": 0})
    if found["limit"] is None and reference is not None:
        found |= {"first": [], "limit": prediction_limit(*reference, rule.level)}
    if value is None:
        return found
    if found["limit"] is None:
        found["first"] = [*found["first"], value]
        if len(found["first"]) == rule.warmup:
            first = np.array(found["first"])
            found["limit"] = prediction_limit(float(first.mean()), float(first.std(ddof=1)), rule.warmup, rule.level)
        return found
    low = value < found["limit"]
    found |= {"low": found["low"] + 1, "high": 0} if low else {"low": 0, "high": found["high"] + 1}
    if not found["drifted"] and found["low"] >= rule.patience:
        found |= {"drifted": True, "alarms": found["alarms"] + 1}
    elif found["drifted"] and found["high"] >= rule.patience:
        found["drifted"] = False
    return found


def prediction_limit(mean: float, sd: float, n: int, level: float) -> float:
    """Return the value below which the next of n + 1 normal readings falls with probability 1 - level."""
    from scipy.stats import t

    return _rounded(mean - float(t.ppf(level, n - 1)) * sd * (1 + 1 / n) ** 0.5)


@dataclass(frozen=True)
class Said:
    """A message to be read."""

    role: str
    observation: str
    text: str
    state: Mapping[str, Any] | None
    """The notes on drift of the agent's turn before; None at its first."""


@dataclass
class DriftWatch:
    """Reads messages: their projection on the role's direction, on a random one as the control, and a judge's score.

    Args:
        rule: What counts as drift.
        model: Reads; without access to its residual stream, or for a role without a direction, the judge decides.
        directions: By role id.
        roles: What the judge needs to know of each role, by id.
        judge: Scores messages; None where the rule names none.
        references: From the screen, by role id; empty for the agents' own first messages.
    """

    rule: DriftRule
    model: LanguageModel
    directions: Mapping[str, Direction]
    roles: Mapping[str, Admission]
    judge: Judge | None = None
    references: Mapping[str, Reference] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.directions and self.judge is None:
            raise UserError(
                "drift: no role has a direction that this model can be read along, and there is no judge; use a local "
                "model and a lock with directions, or give judge: offline."
            )
        for direction in self.directions.values():
            direction.check(self.model)  # type: ignore[arg-type]  # only readable models are given directions
        self._controls = {name: random_direction(direction) for name, direction in self.directions.items()}

    def read(self, messages: Sequence[Said]) -> list[dict[str, Any]]:
        """Return the notes on drift of each message, which hold all that the next reading needs.

        Returns:
            `role`; `turn`, messages of the agent so far in this role; `projection`, `control` and `score` of this one
            (None where not read); `watched`, which of them decides; `state` and `control_state`, see `advance`.
        """
        before = [self._before(message) for message in messages]
        due = [place for place, state in enumerate(before) if state["turn"] % self.rule.every == 0]
        readings = self._project([messages[place] for place in due])
        scores = self._score([messages[place] for place in due])
        found = []
        for place, (message, state) in enumerate(zip(messages, before, strict=True)):
            position = due.index(place) if place in due else None
            pair = (None, None) if position is None else readings[position]
            found.append(self._noted(message.role, state, pair, None if position is None else scores[position]))
        return found

    def _before(self, message: Said) -> dict[str, Any]:
        """A role that was swapped starts anew."""
        state = dict(message.state or {})
        if state.get("role") != message.role:
            return {"role": message.role, "turn": 0, "state": None, "control_state": None}
        return state

    def _noted(
        self, role: str, before: Mapping[str, Any], pair: tuple[float | None, float | None], score: float | None
    ) -> dict[str, Any]:
        watched = "projection" if role in self.directions else "score"
        value = pair[0] if watched == "projection" else score
        state = advance(self.rule, before["state"], value, self.references.get(role))
        control = advance(self.rule, before["control_state"], pair[1])
        return {
            "role": role,
            "turn": before["turn"] + 1,
            "projection": pair[0],
            "control": pair[1],
            "score": score,
            "watched": watched,
            "state": state,
            "control_state": control,
        }

    def _project(self, messages: Sequence[Said]) -> list[tuple[float | None, float | None]]:
        found: list[tuple[float | None, float | None]] = [(None, None)] * len(messages)
        rows = [place for place, said in enumerate(messages) if said.role in self.directions and said.text.strip()]
        if not rows:
            return found
        sites = sorted({self.directions[messages[place].role].manifest.site for place in rows})
        texts = [messages[place].text for place in rows]
        for row, state in read_texts(self.model, texts, sites):
            role = messages[rows[row]].role
            direction = self.directions[role]
            vector = state[sites.index(direction.manifest.site)]
            found[rows[row]] = (projection(vector, direction), projection(vector, self._controls[role]))
        return found

    def _score(self, messages: Sequence[Said]) -> list[float | None]:
        if self.judge is None or not messages:
            return [None] * len(messages)
        items = [JudgeItem(self.roles[said.role].role, said.observation, said.text) for said in messages]
        values = [score.values.get("overall") for score in self.judge.score(items)]
        return [None if value is None else _rounded(value) for value in values]


def read_texts(model: LanguageModel, texts: Sequence[str], sites: Sequence[int]) -> Any:
    """Yield (place, states of shape (sites, hidden)) of texts, each read alone: see `READ_UNDER`."""
    assert isinstance(model, ReadableModel)
    return model.activations([READ_UNDER] * len(texts), list(texts), list(sites), "reply-mean")


def projection(state: Any, direction: Direction) -> float:
    """Return the length of a state along a direction at its own site, to five digits."""
    vector = direction.at().astype(np.float64)
    return _rounded(float(state.astype(np.float64) @ vector / np.linalg.norm(vector)))


def find_directions(cast: Mapping[str, Admission], lock: Path, model: LanguageModel) -> dict[str, Direction]:
    """Return the directions of the roles that have one.

    A steered role has it in the lock. For a role that was let in by prompt, the run that screened it may hold the one
    it extracted; a preset that keeps raw means leaves none that could be used alone.
    """
    if not isinstance(model, ReadableModel):
        return {}
    found = {}
    for name, part in cast.items():
        if part.direction is not None:
            direction: Direction | None = Direction.load(part.direction)
        else:
            files = sorted((lock.parent / "extractions").glob(f"*/{name}.safetensors"))
            direction = Extraction.load(files[0]).direction if files else None
        if direction is not None and direction.manifest.kind != "role-mean" and direction.norm() > 0:
            found[name] = direction
    return found


def screen_references(
    cast: Mapping[str, Admission], directions: Mapping[str, Direction], lock: Path, model: LanguageModel
) -> dict[str, Reference]:
    """Return how each role's own answers lie on its direction in the run that screened it.

    Raises:
        UserError: If the folder of the lock is no run, or holds fewer than two answers of a role.
    """
    with RunStore.read(lock.parent) as run:
        answers = {key: row["answer"] for key, row in run.rows("answers").items() if row["answer"].strip()}
    found = {}
    for name, direction in directions.items():
        part = cast[name]
        steered = part.conditioner == "steering"
        texts = [text for key, text in answers.items() if _of_role(Cell.parse(key), name, part.strength, steered)]
        if len(texts) < 2:
            raise UserError(
                f"drift: {lock.parent} holds {len(texts)} answers of {name!r}, and a reference needs two; use "
                "reference: first-turns."
            )
        values = [projection(state[0], direction) for _, state in read_texts(model, texts, [direction.manifest.site])]
        found[name] = (float(np.mean(values)), float(np.std(values, ddof=1)), len(values))
    return found


def _of_role(cell: Cell, role: str, strength: float | None, steered: bool) -> bool:
    if cell.role != role:
        return False
    return cell.arm == "role" and cell.strength == strength if steered else cell.arm == "prompted"


def _rounded(value: float) -> float:
    """Five digits: batches of another make-up differ in the last ones."""
    return float(f"{value:.5g}")
