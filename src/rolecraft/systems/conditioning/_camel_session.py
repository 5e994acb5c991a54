"""CAMEL's role-play sessions: a brief becomes a dialogue of two agents, and many briefs a data set."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rolecraft._run import derive_seed
from rolecraft.agents import (
    Brief,
    Critic,
    CriticPolicy,
    DialoguePolicy,
    DialoguePrompts,
    PreparedTask,
    generate_tasks,
    plan_tasks,
    specify_tasks,
)
from rolecraft.agents._dialogue_policy import TALK
from rolecraft.errors import UserError
from rolecraft.measures import Adherence, measure_adherence
from rolecraft.models import LanguageModel, Sampling
from rolecraft.worlds import Dialogue, Episode, Policy, Rules, Table, Turn, play_all

if TYPE_CHECKING:
    from rolecraft.measures._role_space import TextEncoder


@dataclass(frozen=True)
class RolePlay:
    """A dialogue that was played."""

    brief: Brief
    """The task is the idea as it was given."""
    task: str
    """The task as the agents saw it: specified and planned, where that was asked for."""
    episode: Episode
    adherence: Adherence
    unprepared: tuple[str, ...] = ()
    """Why the task was not specified or not planned, though that was asked for; empty where nothing failed."""

    @property
    def reason(self) -> str:
        """Why it ended; see `Dialogue`."""
        return str(self.episode.outcome.get("reason") or self.episode.ended)

    @property
    def messages(self) -> tuple[Turn, ...]:
        """The messages in order: `agent`, `action` and, in the notes, `tokens`."""
        return self.episode.turns

    def record(self, id: str) -> dict[str, Any]:
        """Return the dialogue in the form of CAMEL's data set; role 1 is the assistant."""
        names = {"assistant": self.brief.assistant, "user": self.brief.user}
        said = {
            f"message_{number}": {
                "role_name": names[turn.agent], "role_type": turn.agent.upper(), "content": turn.action,
                "tokens": turn.notes.get("tokens"),
            }
            for number, turn in enumerate(self.messages, 1)
        }  # fmt: skip
        return {
            "id": id, "role_1": self.brief.assistant, "role_2": self.brief.user, "original_task": self.brief.task,
            "specified_task": self.task, **said, "num_messages": len(said), "termination_reason": self.reason,
            "unprepared": list(self.unprepared),
        }  # fmt: skip


@dataclass(frozen=True)
class RolePlaySession:
    """How dialogues are played; `run` plays one, `run_all` many side by side.

    Both seats share a model and no state: a seat's chat is made from its own view, see `DialoguePolicy`.

    Raises:
        UserError: If `stand_ins` names a seat that does not exist.
    """

    model: LanguageModel
    critic: Critic | None = None
    """Chooses among `options` drafts of every message; None: the first is said."""
    options: int = 3
    specify: bool = True
    """Let the model make the task specific, in at most `word_limit` words."""
    plan: bool = False
    """Let it append sub-steps."""
    word_limit: int = 50
    prompts: DialoguePrompts | None = None
    """None: inception prompts."""
    sampling: Sampling = TALK
    """Of every message."""
    limits: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `Dialogue`, such as `max_messages`."""
    stand_ins: Mapping[str, Policy] = field(default_factory=dict)
    """Who speaks in a seat instead of the model: a person, a program."""
    embedder: TextEncoder | None = None
    """For the measures of repetition."""

    def __post_init__(self) -> None:
        unknown = [seat for seat in self.stand_ins if seat not in Dialogue.agents]
        if unknown:
            raise UserError(f"stand_ins: there is no seat {unknown[0]!r}; the seats are {', '.join(Dialogue.agents)}.")

    def run(self, assistant_role: str, user_role: str, task: str, seed: int = 0) -> RolePlay:
        """Play one dialogue.

        Raises:
            UserError: If a role or the task is empty.
        """
        return self.run_all([Brief(assistant_role, user_role, task)], [seed])[0]

    def run_all(self, briefs: Sequence[Brief], seeds: Sequence[int]) -> list[RolePlay]:
        """Play many dialogues side by side; each comes out as it would alone.

        Where the model specifies or plans nothing, the task stands as it was. That is on record in the dialogue's
        `unprepared`, and a warning counts it.

        Raises:
            UserError: If there are not as many seeds as briefs.
        """
        if len(seeds) != len(briefs):
            raise UserError(f"got {len(seeds)} seeds for {len(briefs)} briefs; give one per brief.")
        same = [brief.user for brief in briefs if brief.user == brief.assistant]
        if same:
            warnings.warn(f"{len(same)} dialogues have one role twice, such as {same[0]!r}.", stacklevel=2)
        prepared = self._prepare(briefs, seeds)
        tasks = [text for text, _ in prepared]
        policies = self._policies()
        worlds = [
            Dialogue(task, {"user": brief.user, "assistant": brief.assistant}, **self.limits)
            for brief, task in zip(briefs, tasks, strict=True)
        ]
        tables = [Table(world, policies, seed) for world, seed in zip(worlds, seeds, strict=True)]
        limit = max((rule.limit for world in worlds for rule in world.rules if rule.name == "max_messages"), default=1)
        episodes = play_all(tables, Rules(limit=limit))
        return [
            RolePlay(brief, task, episode, self._measured(world), failures)
            for brief, (task, failures), episode, world in zip(briefs, prepared, episodes, worlds, strict=True)
        ]

    def _prepare(self, briefs: Sequence[Brief], seeds: Sequence[int]) -> list[tuple[str, tuple[str, ...]]]:
        """Return each task as the agents will see it, and what failed on the way."""
        passes: list[list[PreparedTask]] = [[PreparedTask(brief.task) for brief in briefs]]
        if self.specify:
            drawn = [derive_seed(seed, "specify") for seed in seeds]
            passes.append(specify_tasks(self.model, briefs, words=self.word_limit, seeds=drawn))
        if self.plan:
            specified = [replace(brief, task=task.text) for brief, task in zip(briefs, passes[-1], strict=True)]
            passes.append(plan_tasks(self.model, specified, seeds=[derive_seed(seed, "plan") for seed in seeds]))
        failures = [tuple(one.failure for one in each if one.failure) for each in zip(*passes, strict=True)]
        failed = [reasons[0] for reasons in failures if reasons]
        if failed:
            warnings.warn(
                f"{len(failed)} of {len(briefs)} tasks stand as given, such as one {failed[0]}.", stacklevel=3
            )
        return [(task.text, reasons) for task, reasons in zip(passes[-1], failures, strict=True)]

    def _policies(self) -> dict[str, Policy]:
        speaker: Policy = DialoguePolicy(self.model, self.prompts, self.sampling)
        if self.critic is not None:
            speaker = CriticPolicy(speaker, self.critic, self.options)
        return dict.fromkeys(Dialogue.agents, speaker) | dict(self.stand_ins)

    def _measured(self, world: Dialogue) -> Adherence:
        return measure_adherence(world.said, self.embedder, markers=world.markers)


def generate_society(
    session: RolePlaySession,
    roles_a: Sequence[str],
    roles_u: Sequence[str],
    tasks: Sequence[str] | int,
    path: str | Path,
    *,
    seed: int = 0,
    together: int = 32,
) -> int:
    """Play every assistant role with every user role on every task, and write a record per line as they are played.

    A file that is there is gone on with: dialogues whose record it holds are not played again. Records have the keys
    of `RolePlay.record`, the id `AAA_UUU_TTT` by number of role, role and task, and the model and seed.

    Args:
        session: How they are played.
        roles_a: Of the assistant.
        roles_u: Of the user.
        tasks: The same for all pairs; or how many the model is to list for each.
        path: A JSONL file.
        seed: Of everything.
        together: Dialogues played side by side.

    Returns:
        How many records were added.

    Raises:
        UserError: If roles or tasks are missing, or the file was written with another model or seed.
        ModelError: If the model lists too few tasks.
    """
    if not roles_a or not roles_u or not tasks or together < 1:
        raise UserError("give at least one role for each seat, one task, and together of at least 1.")
    path = Path(path)
    known = _known_ids(path, session.model.name, seed)
    briefs = {
        f"{a:03}_{u:03}_{t:03}": Brief(assistant, user, task)
        for a, assistant in enumerate(roles_a, 1)
        for u, user in enumerate(roles_u, 1)
        for t, task in enumerate(_pair_tasks(session.model, assistant, user, tasks, seed), 1)
    }
    missing = [id for id in briefs if id not in known]
    for start in range(0, len(missing), together):
        ids = missing[start : start + together]
        played = session.run_all([briefs[id] for id in ids], [derive_seed("society", seed, id) for id in ids])
        extra = {"model": session.model.name, "seed": seed}
        lines = [json.dumps(one.record(id) | extra, ensure_ascii=False) for id, one in zip(ids, played, strict=True)]
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
    return len(missing)


def _pair_tasks(
    model: LanguageModel, assistant: str, user: str, tasks: Sequence[str] | int, seed: int
) -> Sequence[str]:
    return generate_tasks(model, assistant, user, tasks, seed=seed) if isinstance(tasks, int) else tasks


def _known_ids(path: Path, model: str, seed: int) -> set[str]:
    """Return the ids that a file holds; a last line that was cut off is taken out of it."""
    if not path.exists():
        return set()
    text = path.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    if len(whole) < len(text):
        with path.open("r+b") as file:
            file.truncate(len(whole))
    ids = set()
    for number, line in enumerate(whole.decode("utf-8").split("\n")[:-1], 1):
        try:
            record = json.loads(line)
            made = (record["model"], record["seed"])
            ids.add(str(record["id"]))
        except (json.JSONDecodeError, KeyError, TypeError):
            raise UserError(f"{path}, line {number}: not a record of a society; give another path.") from None
        if made != (model, seed):
            raise UserError(
                f"{path}, line {number}: written with model and seed {made}, now {(model, seed)}; give another path."
            )
    return ids
