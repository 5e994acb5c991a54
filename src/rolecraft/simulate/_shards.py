"""Episodes as shards: what one worker plays, here or in another process, and the rows that come back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from rolecraft._run import derive_seed
from rolecraft.agents import RolePolicy, ThinkAct
from rolecraft.guard import GuardedPolicy
from rolecraft.guard._choice import without_times
from rolecraft.models import LanguageModel, Sampling
from rolecraft.screening._answers import shared_model
from rolecraft.screening._scores import build_judge
from rolecraft.simulate._acting import DirectedPolicy, adjust_part
from rolecraft.simulate._cast import study_caps
from rolecraft.simulate._drift import DriftWatch, find_directions, screen_references
from rolecraft.simulate._interventions import StudyDirector
from rolecraft.simulate._records import (
    DECISIONS,
    DRIFT,
    EPISODES,
    FAILURES,
    STEPS,
    drift_rows,
    episode_row,
    guard_rows,
    stopped_by_guard,
)
from rolecraft.worlds import Episode, Rules, Table, Turn, play_all

if TYPE_CHECKING:
    from rolecraft.guard import RoleGuards
    from rolecraft.screening import Admission
    from rolecraft.simulate._study import SimulationStudy

Rows = Mapping[str, Mapping[str, Any]]
"""Stage to key to row."""


@dataclass(frozen=True)
class Shard:
    """Episodes of one arm that are played side by side."""

    arm: str
    numbers: tuple[int, ...]
    seatings: tuple[Mapping[str, str], ...]
    """The role of every agent, per episode."""
    played: tuple[tuple[Turn, ...], ...]
    """Turns on record, per episode."""
    failures: tuple[tuple[Mapping[str, Any], ...], ...]
    """Failures on record, per episode."""

    def key(self, place: int) -> str:
        """Return the key of an episode."""
        return f"{self.arm}/{self.numbers[place]}"


@dataclass(frozen=True)
class Player:
    """Plays shards; holds the model, or in another process its string alone."""

    study: SimulationStudy
    cast: Mapping[str, Admission]
    model: LanguageModel | None = None
    guards: RoleGuards | None = None
    """By role; None: nobody has one."""

    def __call__(self, shard: Shard) -> dict[str, dict[str, Any]]:
        """Play a shard in another process and return all its rows."""
        found: dict[str, dict[str, Any]] = {}

        def keep(rows: Rows) -> None:
            for stage, new in rows.items():
                found.setdefault(stage, {}).update(new)

        self.play(shard, keep)
        return found

    def play(self, shard: Shard, keep: Callable[[Rows], None]) -> None:
        """Play a shard and hand over the rows of each step as it is taken, at last those of the episodes."""
        policy = self._policy(shard.arm)
        tables = [self._table(shard, place, policy) for place in range(len(shard.numbers))]

        def on_step(new: Mapping[int, Sequence[Turn]]) -> None:
            keep(self._step_rows(shard, new))

        recall = max(Rules.recall, self.study.memory.recall if self.study.memory else 0)
        rules = Rules(
            self.study.limit, self.study.repairs, self.study.on_illegal, recall, limits=self.study.limits.build()
        )
        episodes = play_all(tables, rules, on_step)
        keep({EPISODES: {shard.key(place): self._row(shard, place, one) for place, one in enumerate(episodes)
                         if one.ended != "failed" or any(map(stopped_by_guard, one.turns))}})  # fmt: skip

    def _step_rows(self, shard: Shard, new: Mapping[int, Sequence[Turn]]) -> Rows:
        """A step in which an answer did not come is no step: it is recorded, and asked for anew on resuming."""
        rows: dict[str, dict[str, Any]] = {DRIFT: {}, DECISIONS: {}, STEPS: {}, FAILURES: {}}
        for place, turns in new.items():
            key, roles = shard.key(place), shard.seatings[place]
            lost = [turn for turn in turns if self._lost(turn)]
            if lost:
                number = len(shard.failures[place])
                rows[FAILURES] |= {
                    f"{key}/{number + offset}": _failure(shard, place, turn) for offset, turn in enumerate(lost)
                }
                continue
            rows[DRIFT] |= drift_rows(key, turns, roles)
            rows[DECISIONS] |= guard_rows(key, turns)
            rows[STEPS][f"{key}/{turns[0].step}"] = [without_times(asdict(turn)) for turn in turns]
        return rows

    def _lost(self, turn: Turn) -> bool:
        if stopped_by_guard(turn):
            return False
        return "failed" in turn.notes or (self.study.on_failure == "halt" and turn.notes.get("end") == "error")

    def _row(self, shard: Shard, place: int, episode: Episode) -> dict[str, Any]:
        unscreened = sorted({name for name in episode.roles.values() if not self.cast[name].screened})
        return episode_row(shard.key(place), episode, unscreened, shard.failures[place])

    def _table(self, shard: Shard, place: int, policy: DirectedPolicy) -> Table:
        world = self.study.make_world()
        seating, number = shard.seatings[place], shard.numbers[place]
        planned = {
            str(position): one
            for position, one in enumerate(self.study.interventions)
            if not one.arms or shard.arm in one.arms
        }
        return Table(
            world,
            dict.fromkeys(world.agents, policy),
            derive_seed(self.study.seed, "episode", number),
            seating,
            shard.played[place],
            StudyDirector(planned, world, seating) if planned else None,
        )

    def _policy(self, arm: str) -> DirectedPolicy:
        conditioning = self.study.arms[arm]
        sampling = Sampling(self.study.max_tokens, self.study.temperature, self.study.top_p)
        cast = self.cast
        if conditioning == "prompt":
            cast = {
                name: replace(part, conditioner="prompt", strength=None, direction=None) for name, part in cast.items()
            }
        bare = conditioning == "none"
        memory = self.study.memory.build(self._loaded) if self.study.memory else None
        reader = ThinkAct(self.study.think) if self.study.think else None
        adjust = partial(adjust_part, caps=study_caps(self.study, self.cast, self._loaded, self._guards_of(arm)))
        inner = RolePolicy(self._loaded, cast, sampling, bare, adjust, memory=memory, reader=reader)
        return DirectedPolicy(inner, cast, self._watch_of(arm, bare), self.study.retries, self._guard_of(arm, inner))

    def _guard_of(self, arm: str, inner: RolePolicy) -> GuardedPolicy | None:
        guards, tries = self._guards_of(arm), self.study.guard.tries
        return GuardedPolicy(inner, guards, tries=tries, repairs=self.study.repairs) if guards else None

    def _guards_of(self, arm: str) -> RoleGuards | None:
        arms = self.study.guard.arms
        return None if arms and arm not in arms else self.guards

    def _watch_of(self, arm: str, bare: bool) -> DriftWatch | None:
        rule = self.study.drift
        if rule is None or (arm not in rule.arms if rule.arms else bare):
            return None
        return self.watch

    @property
    def _loaded(self) -> LanguageModel:
        return self.model or shared_model(self.study.model)

    @cached_property
    def watch(self) -> DriftWatch:
        """The drift watch, built when first needed."""
        return build_watch(self.study, self.cast, self._loaded)


def build_watch(study: SimulationStudy, cast: Mapping[str, Admission], model: LanguageModel) -> DriftWatch:
    """Build the drift watch of a study.

    Raises:
        UserError: If there is nothing to watch by.
        JudgeError: If an LLM judge fails its calibration.
    """
    from rolecraft.roles import load_inventory

    rule = study.drift
    assert rule is not None
    directions = find_directions(cast, study.lock, model)
    judge = (
        build_judge(rule.judge, model, load_inventory(study.inventory), allow_uncalibrated=rule.allow_uncalibrated)
        if rule.judge
        else None
    )
    screened = rule.reference == "screen"
    references = screen_references(cast, directions, study.lock, model) if screened else {}
    return DriftWatch(rule, model, directions, cast, judge, references)


def _failure(shard: Shard, place: int, turn: Turn) -> dict[str, Any]:
    reason = turn.notes.get("failed") or "; ".join(turn.notes.get("failures", ())) or "no reply"
    return {
        "arm": shard.arm,
        "number": shard.numbers[place],
        "step": turn.step,
        "agent": turn.agent,
        "role": shard.seatings[place].get(turn.agent),
        "reason": reason,
    }
