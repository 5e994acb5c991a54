"""Measuring a finished simulation: what its agents said and did is scored, and every score is kept in the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rolecraft._run import Progress, RunStore, RunView
from rolecraft.errors import RunMismatchError, UserError, did_you_mean
from rolecraft.measures import Judge, JudgeItem
from rolecraft.models import LanguageModel
from rolecraft.models._base import FloatArray
from rolecraft.roles import Inventory, Role, load_inventory
from rolecraft.simulate._measure_roles import put_questionnaire
from rolecraft.simulate._measured import (
    ACTIONS,
    DIVERSITY,
    DRIFT_NAME,
    LLM,
    MEASURES,
    OFFLINE,
    QUESTIONNAIRE,
    choice_figures,
    stage_of,
    text_figures,
)
from rolecraft.simulate._records import KIND, read_drift, read_episode, read_episodes
from rolecraft.simulate._runner import study_model
from rolecraft.simulate._study import SimulationStudy
from rolecraft.worlds import Turn

if TYPE_CHECKING:
    from rolecraft.measures._role_space import TextEncoder

_CHUNK = 64
"""Messages judged before the scores are stored."""
RUBRIC = "role-alignment-v1"
"""The rubric of an LLM judge: a message has no prompted reference, which the other one needs."""


@dataclass(frozen=True)
class PlayedTurn:
    """A decision that an agent took itself, under a role."""

    arm: str
    number: int
    role: str
    turn: Turn

    @property
    def key(self) -> str:
        """`arm/number/step/agent`."""
        return f"{self.arm}/{self.number}/{self.turn.step}/{self.turn.agent}"


@dataclass
class Measuring:
    """A finished simulation that is being measured.

    Args:
        store: The run.
        judge: Model string of the LLM judge.
        allow_uncalibrated: Take it without holding it against the labelled cases.
        model: Instead of the one that played.
        judges: Judges by name of the measure, instead of those that would be built.
        encoder: Of texts, instead of the embedded one.
        quiet: Show no progress.
    """

    store: RunStore
    judge: str = ""
    allow_uncalibrated: bool = False
    model: LanguageModel | None = None
    judges: Mapping[str, Judge] = field(default_factory=dict)
    encoder: TextEncoder | None = None
    quiet: bool = False

    @cached_property
    def study(self) -> SimulationStudy:
        """The study as it was played."""
        config = self.store.config
        return SimulationStudy.model_validate(
            {name: config[name] for name in SimulationStudy.model_fields if name in config}
        )

    @cached_property
    def inventory(self) -> Inventory:
        """The roles, as they were played.

        Raises:
            UserError: If a role has changed since.
        """
        inventory = load_inventory(self.study.inventory)
        known = {role.id: role for role in inventory}
        for name, facts in self.store.config["cast"].items():
            if name not in known or known[name].hash != facts[0]:
                raise UserError(
                    f"{self.study.inventory}: the role {name!r} is not there any more, or not as it was played; give "
                    "back the inventory of the run to measure it."
                )
        return inventory

    @cached_property
    def player(self) -> LanguageModel:
        """The model that played.

        Raises:
            RunMismatchError: If it is not the one on record.
        """
        model = self.model or study_model(self.study)
        played = (self.store.config["model_name"], self.store.config["model_revision"])
        if (model.name, model.revision) != played:
            raise RunMismatchError(
                f"{self.store.directory}: was played by {played[0]}, revision {played[1]}; the model is now "
                f"{model.name}, revision {model.revision}. Give back that model to measure the run."
            )
        return model

    @cached_property
    def turns(self) -> tuple[PlayedTurn, ...]:
        """Every decision that an agent with a role took itself: no random stand-in, nothing done on orders."""
        found = []
        for key, row in read_episodes(self.store).items():
            episode = read_episode(self.store, key)
            for turn in episode.turns:
                role = _role_of(turn, episode.roles.get(turn.agent))
                if role is not None and _own(turn):
                    found.append(PlayedTurn(row["arm"], row["number"], role, turn))
        return tuple(found)

    @property
    def spoken(self) -> list[PlayedTurn]:
        """Free text that is not empty."""
        return [played for played in self.turns if played.turn.legal is None and played.turn.action.strip()]

    @property
    def chosen(self) -> list[PlayedTurn]:
        """Choices among several legal actions."""
        return [played for played in self.turns if played.turn.legal is not None and len(played.turn.legal) > 1]


def measure_run(
    directory: str | Path,
    names: Sequence[str],
    *,
    judge: str = "",
    allow_uncalibrated: bool = False,
    model: LanguageModel | None = None,
    judges: Mapping[str, Judge] | None = None,
    encoder: TextEncoder | None = None,
    quiet: bool = False,
) -> None:
    """Measure a finished simulation; what has been measured before is not measured again.

    Scores are stored in the run, a stage per measure, as they are made; `read_measures` summarises them.

    Args:
        directory: A run directory of `rolecraft simulate`.
        names: Keys of `MEASURES`.
        judge: Model string of the judge of `llm-judge`.
        allow_uncalibrated: Take that judge without calibrating it.
        model: Instead of the one the run names; it must be the same.
        judges: Ready judges by name of their measure.
        encoder: Of texts; default: the embedded one.
        quiet: Show no progress.

    Raises:
        UserError: If a measure is unknown, the run is no simulation or not finished, has nothing that the measure
            measures, or a judge is needed and none was given.
        RunMismatchError: If the roles or the model are not those that played.
        JudgeError: If an LLM judge fails its calibration.
    """
    for name in names:
        if name not in MEASURES:
            raise UserError(f"no measure {name!r} (measures: {', '.join(MEASURES)}).{did_you_mean(name, MEASURES)}")
    if LLM in names and not judge and LLM not in (judges or {}):
        raise UserError(f"{LLM} needs a judge; give --judge MODEL, such as --judge openai:NAME@URL.")
    with RunStore.read(directory) as view:
        check_finished(view)
        config = view.config
    with RunStore.open(directory, KIND, config, resume=True, volatile=()) as store:
        measuring = Measuring(store, judge, allow_uncalibrated, model, judges or {}, encoder, quiet)
        for name in dict.fromkeys(names):
            _COLLECTORS[name](measuring)


def check_finished(view: RunView) -> None:
    """Refuse a run that cannot be measured.

    Raises:
        UserError: If it is no simulation, or episodes are missing.
    """
    if view.kind != KIND:
        raise UserError(
            f"{view.directory}: a run of kind {view.kind!r}; only runs of `rolecraft simulate` can be measured."
        )
    keys = [f"{arm}/{number}" for arm in view.config["arms"] for number in range(view.config["episodes"])]
    missing = view.missing("episodes", keys)
    if missing:
        raise UserError(
            f"{view.directory}: {len(keys) - len(missing)} of {len(keys)} episodes are finished; go on with "
            f"`rolecraft simulate STUDY --out {view.directory} --resume`, and measure then."
        )


def _role_of(turn: Turn, seated: str | None) -> str | None:
    """Return the role of a decision: that of the seat, or what an intervention has put in its place."""
    for order in turn.notes.get("interventions", {}).get("applied", ()):
        seated = order["role"] if order["what"] == "role" else seated
    return seated


def _own(turn: Turn) -> bool:
    orders = turn.notes.get("interventions", {}).get("applied", ())
    ordered = any(order["what"] in ("do", "silence") for order in orders) or turn.notes.get("held") == "retire"
    return not turn.fallback and not ordered


def _offline(measuring: Measuring) -> None:
    spoken = _text(measuring, OFFLINE)
    judge = measuring.judges.get(OFFLINE)
    if judge is None:
        from rolecraft.measures import OfflineJudge
        from rolecraft.models import Embedder

        judge = OfflineJudge(measuring.player, measuring.encoder or Embedder.load(), measuring.inventory)
    _judge(measuring, OFFLINE, judge, spoken)


def _llm(measuring: Measuring) -> None:
    spoken = _text(measuring, LLM)
    judge = measuring.judges.get(LLM)
    if judge is None:
        from rolecraft.measures import LLMJudge
        from rolecraft.models import load_model

        trusted = measuring.allow_uncalibrated
        asked = LLMJudge(load_model(measuring.judge), RUBRIC, measuring.store, allow_uncalibrated=trusted)
        judge = asked if trusted else asked.calibrated()
    _judge(measuring, LLM, judge, spoken)


def _text(measuring: Measuring, name: str) -> list[PlayedTurn]:
    spoken = measuring.spoken
    if not spoken:
        raise UserError(
            f"{measuring.store.directory}: nobody says free text in {measuring.study.world.name!r}, so there is "
            f"nothing for {name} to score; measure {ACTIONS} or {DIVERSITY}."
        )
    return spoken


def _judge(measuring: Measuring, name: str, judge: Judge, spoken: Sequence[PlayedTurn]) -> None:
    """Score every message for the role of its agent; in an arm without roles, for the one it would have had.

    A reply that cannot be read is a missing score. One that did not come is not stored: the next call asks again.
    """
    stage, store = stage_of(name), measuring.store
    roles: dict[str, Role] = {role.id: role for role in measuring.inventory}
    keyed = {f"{judge.rubric_hash}/{played.key}": played for played in spoken}
    todo = store.missing(stage, keyed)
    with (
        store.timed(stage),
        Progress(len(keyed), name, done=len(keyed) - len(todo), quiet=measuring.quiet) as progress,
    ):
        for start in range(0, len(todo), _CHUNK):
            part = todo[start : start + _CHUNK]
            items = [
                JudgeItem(roles[keyed[key].role], keyed[key].turn.observation, keyed[key].turn.action) for key in part
            ]
            rows = {}
            for key, score in zip(part, judge.score(items), strict=True):
                if "no reply" not in score.note:
                    rows[key] = _identity(keyed[key]) | {
                        "judge": judge.name,
                        "scores": dict(score.values),
                        "note": score.note,
                    }
            store.put_many(stage, rows)
            progress.advance(len(part))


def _identity(played: PlayedTurn) -> dict[str, Any]:
    return {
        "arm": played.arm,
        "number": played.number,
        "step": played.turn.step,
        "agent": played.turn.agent,
        "role": played.role,
    }


def _actions(measuring: Measuring) -> None:
    """Count what was done, a row per episode: by role, choice and how often."""
    chosen = measuring.chosen
    if not chosen:
        raise UserError(
            f"{measuring.store.directory}: nobody chooses among actions in {measuring.study.world.name!r}, all is free "
            f"text; measure {OFFLINE} or {DIVERSITY}."
        )
    store, stage = measuring.store, stage_of(ACTIONS)
    counts: dict[str, dict[str, Counter[str]]] = {}
    for played in chosen:
        by_role = counts.setdefault(f"{played.arm}/{played.number}", {})
        by_role.setdefault(played.role, Counter())[played.turn.action] += 1
    rows = {}
    for key, row in read_episodes(store).items():
        found = {role: dict(counted) for role, counted in counts.get(key, {}).items()}
        rows[key] = {"arm": row["arm"], "number": row["number"], "counts": found, "random": row["fallbacks"]}
    with store.timed(stage):
        store.put_many(stage, {key: rows[key] for key in store.missing(stage, rows)})


def _diversity(measuring: Measuring) -> None:
    """Figures per arm: how varied choices and texts are, and what roles explain of them."""
    store, stage = measuring.store, stage_of(DIVERSITY)
    chosen, spoken = measuring.chosen, measuring.spoken
    if not chosen and not spoken:
        raise UserError(f"{store.directory}: no agent with a role has said or chosen anything.")
    encoder = measuring.encoder
    if encoder is None and spoken:
        from rolecraft.models import Embedder

        encoder = Embedder.load()
    made_with = encoder.revision if encoder and spoken else "-"
    todo = set(store.missing(stage, [f"{made_with}/{arm}" for arm in measuring.study.arms]))
    with store.timed(stage):
        for arm in measuring.study.arms:
            if f"{made_with}/{arm}" not in todo:
                continue
            figures = []
            done = [played for played in chosen if played.arm == arm]
            if done:
                options = sorted({option for played in done for option in played.turn.legal or ()})
                figures += choice_figures(*_columns(done), [played.turn.action for played in done], options)
            said = [played for played in spoken if played.arm == arm]
            if said and encoder is not None:
                vectors: FloatArray = encoder.encode([played.turn.action for played in said])
                figures += text_figures(*_columns(said), np.asarray(vectors, dtype=float))
            store.put(stage, f"{made_with}/{arm}", {"arm": arm, "figures": figures})


def _columns(played: Sequence[PlayedTurn]) -> tuple[list[str], list[int]]:
    """Return roles and episode numbers."""
    return [one.role for one in played], [one.number for one in played]


def _drift(measuring: Measuring) -> None:
    """Nothing to compute: the drift watch has stored its readings while the run was played."""
    if not read_drift(measuring.store) and measuring.study.drift is not None:
        raise UserError(f"{measuring.store.directory}: the drift watch has read no message.")


_COLLECTORS: dict[str, Callable[[Measuring], None]] = {
    ACTIONS: _actions,
    DIVERSITY: _diversity,
    OFFLINE: _offline,
    LLM: _llm,
    DRIFT_NAME: _drift,
    QUESTIONNAIRE: put_questionnaire,
}
