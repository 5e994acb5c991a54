"""A teacher that is the student with a skill in its prompt (Skill-SD, arXiv 2604.10674)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from rolecraft._run import derive_seed
from rolecraft.agents import Skill, SkillBank
from rolecraft.errors import UserError
from rolecraft.learning.credit import check_rescoring
from rolecraft.learning.credit._teacher_losses import NO_TEACHER
from rolecraft.learning.skills._writers import SkillWriter

if TYPE_CHECKING:
    from rolecraft.learning.policy import Reply, TokenPolicy
    from rolecraft.learning.trainer import Iteration, Rows, Start, Trainer
    from rolecraft.worlds import Episode, Turn

SkillPrompt = Callable[["TokenPolicy", str, "Reply", "Turn", str | None], Sequence[int]]
"""From a policy, a skill's text, the student's row, its turn and role to the teacher's prompt."""


def skill_prompt(policy: TokenPolicy, text: str, reply: Reply, turn: Turn, role: str | None) -> tuple[int, ...]:
    """Put a skill before the student's prompt: as a part of its own with a `WordCodec`, else before the observation."""
    from rolecraft.learning.policy import WordCodec

    codec = policy.codec
    if isinstance(codec, WordCodec):
        begin, *_, split = codec.prompt("", None, "")
        return (begin, *codec.reply(text), split, *reply.prompt)
    return policy.encode(turn.agent, role, f"{text}\n\n{turn.observation}")


@dataclass(frozen=True)
class TeacherScores:
    """What a teacher says of the student's tokens."""

    logp: NDArray[np.float64]
    """Shape (N, T): of the very tokens that the student sampled; +inf in rows without a skill."""
    shortened: int
    """Rows whose skill was cut to fit."""
    dropped: int
    """Rows that had no room for any of it, and so have no teacher."""


def teacher_columns(
    policy: TokenPolicy,
    rows: Rows,
    texts: Sequence[str | None],
    *,
    reference: bool = False,
    context: int | None = None,
    prompt: SkillPrompt = skill_prompt,
    micro: int = 256,
) -> TeacherScores:
    """Score the student's replies by the policy with a skill in its prompt, without gradient.

    Args:
        policy: The student.
        rows: What it said.
        texts: The skill of each row; None: it has none.
        reference: The policy as it was before training instead of the policy of now.
        context: Most tokens of prompt and reply; None: the model's. A skill that does not fit loses its last words.
        prompt: Makes the teacher's prompt.
        micro: Rows per forward pass.

    Raises:
        UserError: If there is not one text per row, or a skill stands in the student's own prompt: it is the
            teacher's alone.
    """
    from rolecraft.learning.trainer import score_all

    if len(texts) != len(rows.replies):
        raise UserError(
            f"skill teacher: expected a skill or None for each of {len(rows.replies)} rows, got {len(texts)}."
        )
    limit = context or getattr(policy.network.model.config, "max_position_embeddings", None)
    roles, names = rows.batch.keys["role"], rows.names["role"]
    made: dict[tuple[str, Reply], tuple[Reply | None, bool]] = {}
    for row, (text, reply, turn) in enumerate(zip(texts, rows.replies, rows.turns, strict=True)):
        if text is not None and (text, reply) not in made:
            role = names[int(roles[row])]
            given = (text, reply, turn, None if role == turn.agent else role)
            _refuse_leak(policy, row, *given[:3])
            made[text, reply] = _fitted(policy, *given, limit, prompt)
    keys = [None if text is None else (text, reply) for text, reply in zip(texts, rows.replies, strict=True)]
    found = [(None, False) if key is None else made[key] for key in keys]
    column = np.full(rows.batch.shape, NO_TEACHER)
    place = {reply: n for n, reply in enumerate(dict.fromkeys(reply for reply, _ in found if reply is not None))}
    if place:
        logp, _ = score_all(policy, list(place), column.shape[1], micro, reference=reference)
        taught = [row for row, (reply, _) in enumerate(found) if reply is not None]
        column[taught] = logp.double().numpy()[[place[reply] for reply, _ in found if reply is not None]]
    dropped = sum(key is not None and reply is None for key, (reply, _) in zip(keys, found, strict=True))
    return TeacherScores(column, sum(cut for _, cut in found), dropped)


def _fitted(
    policy: TokenPolicy,
    text: str,
    reply: Reply,
    turn: Turn,
    role: str | None,
    limit: int | None,
    prompt: SkillPrompt,
) -> tuple[Reply | None, bool]:
    """Return the teacher's row, with as many of the skill's words as there is room for; None if there is for none."""

    def made(text: str) -> Reply:
        return replace(reply, prompt=tuple(prompt(policy, text, reply, turn, role)))

    def fits(row: Reply) -> bool:
        return limit is None or len(row.prompt) + len(row.tokens) <= limit

    whole = made(text)
    if fits(whole):
        return whole, False
    words = text.split()
    low, high = 0, len(words)  # so many words fit, and so many do not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(made(" ".join(words[:middle]))) else (low, middle)
    return (made(" ".join(words[:low])), True) if low else (None, False)


def _refuse_leak(policy: TokenPolicy, row: int, text: str, reply: Reply, turn: Turn) -> None:
    skill, seen = (" ".join(map(str, each)) for each in (policy.codec.reply(text), reply.prompt))
    if text.strip() in turn.observation or f" {skill} " in f" {seen} ":
        raise UserError(
            f"skill teacher: row {row}, {turn.agent}: the skill {text[:40]!r} stands in the student's own prompt; only "
            "the teacher may see it."
        )


class SkillTeacher:
    """Gives a trainer's rows the columns `logp_teacher` and `has_teacher`, and turns its episodes into skills.

    In each iteration every episode's teacher is told one skill of the episode's task, or nothing while there is none.
    A skill is paid what the episodes that it taught earned, less the mean of their task. New skills come from
    episodes that are over, and teach from the next iteration on. The student never sees one.

    Args:
        policy: The student. The teacher has its weights of now, or with `frozen` those of now for good.
        bank: Where skills are kept.
        writer: Writes them; None: the bank stays as it is, such as one with a fixed answer per task.
        task: Which task an episode's start is.
        told: Whose skills a task is taught by, where not its own: a control.
        frozen: Do not let the teacher learn with the student.
        render: A skill as the teacher is shown it.
        write: Who becomes a skill: of each task the best and the worst episode, or all.
        context: See `teacher_columns`.
        prompt: See `teacher_columns`.
        seed: Of choices among equals.
    """

    def __init__(
        self,
        policy: TokenPolicy,
        bank: SkillBank,
        writer: SkillWriter | None,
        task: Callable[[Start], str],
        *,
        told: Mapping[str, str] | None = None,
        frozen: bool = False,
        render: Callable[[Skill], str] = Skill.text,
        write: Literal["extremes", "all"] = "extremes",
        context: int | None = None,
        prompt: SkillPrompt = skill_prompt,
        seed: int = 0,
    ) -> None:
        self.policy, self.bank, self.writer = policy, bank, writer
        self.figures: dict[str, float] = {}
        """Of the last iteration: `gap` (k3 estimate of KL(student || teacher) per token), `taught` (share of rows),
        `shortened`, `dropped`, `skills`."""
        self._task, self._told, self._frozen, self._render = task, told, frozen, render
        self._write, self._context, self._prompt, self._seed = write, context, prompt, seed
        self._trainer: Trainer | None = None
        if frozen:
            policy.keep_reference()

    def bind(self, trainer: Trainer) -> None:
        """Let a trainer ask this teacher.

        Raises:
            UserError: If it trains another policy than this one's student, or already has columns of its own.
        """
        if list(trainer.policies.values()) != [self.policy]:
            raise UserError("skill teacher: the trainer must train this teacher's student and no other policy.")
        if trainer.columns is not None:
            raise UserError("skill teacher: the trainer has `columns` already; leave them out, or call this one there.")
        self._trainer = trainer
        trainer.columns = self

    def step(self) -> Iteration:
        """Take one iteration of the trainer, then write skills from its episodes; see `Trainer.step`."""
        trainer = self._bound()
        starts = trainer.starts()
        iteration = trainer.step()
        self.learn(iteration.episodes, [self._task(start) for start in starts])
        return iteration

    def __call__(self, rows: Rows) -> dict[str, NDArray[np.float64]]:
        """Choose skills, pay them and return the columns; a trainer calls this between play and credit."""
        trainer = self._bound()
        tasks = [self._task(start) for start in trainer.starts()]
        chosen = self.choose(rows, tasks, trainer.iteration)
        texts = [chosen.get(int(traj)) for traj in rows.batch.keys["traj"]]
        if not self._frozen:
            self.check(rows)
        scores = teacher_columns(
            self.policy, rows, texts, reference=self._frozen, context=self._context, prompt=self._prompt
        )
        self._note(rows, scores)
        known = np.isfinite(scores.logp)
        return {"logp_teacher": np.where(known, scores.logp, 0.0), "has_teacher": known.astype(np.float64)}

    def choose(self, rows: Rows, tasks: Sequence[str], iteration: int = 0) -> dict[int, str]:
        """Choose a skill for each episode, pay it, and return the texts by the episode's number.

        Args:
            rows: With the outcome of each episode.
            tasks: Of each episode.
            iteration: Its number, for choices among equals.
        """
        trajectory = rows.batch.keys["traj"]
        places, first = np.unique(trajectory, return_index=True)
        outcome = dict(zip(places.tolist(), rows.batch.row["outcome"][first].tolist(), strict=True))
        texts: dict[int, str] = {}
        for name in dict.fromkeys(tasks):
            own = [traj for traj in outcome if tasks[traj] == name]
            mean = float(np.mean([outcome[traj] for traj in own])) if own else 0.0
            rng = np.random.default_rng(derive_seed(self._seed, "skill", iteration, name))
            for traj in own:
                entry = self.bank.select(name if self._told is None else self._told[name], rng)
                if entry is not None:
                    texts[traj] = self._render(entry.skill)
                    self.bank.update(entry.id, outcome[traj] - mean)
        return texts

    def check(self, rows: Rows, most: int = 8) -> float:
        """Score a few rows without a skill, which must give what sampling gave; see `check_rescoring`.

        Raises:
            UserError: If the teacher does not see the student's tokens or weights.
        """
        from rolecraft.learning.trainer import score_all

        width = rows.batch.shape[1]
        logp, _ = score_all(self.policy, rows.replies[:most], width, most)
        drawn = rows.batch.token.get("logp_sampled", rows.batch.token["logp_old"])[:most]
        return check_rescoring(logp.double().numpy(), drawn, rows.batch.mask[:most])

    def learn(self, episodes: Sequence[Episode], tasks: Sequence[str]) -> None:
        """Write skills from finished episodes into the bank, and begin its next round.

        Args:
            episodes: With one agent under training each.
            tasks: Of each.
        """
        self.bank.tick()
        if self.writer is None:
            return
        for name in dict.fromkeys(tasks):
            own = [episode for episode, task in zip(episodes, tasks, strict=True) if task == name and episode.turns]
            for number, episode in enumerate(self._worth_writing(own)):
                agent = episode.turns[0].agent
                skill = self.writer(episode, agent)
                if skill is not None:
                    source = f"round {self.bank.round}, seed {episode.seed}, {number}"
                    self.bank.add(name, skill, source=source, outcome=episode.rewards.get(agent, 0.0))

    def _worth_writing(self, episodes: Sequence[Episode]) -> list[Episode]:
        if self._write == "all" or len(episodes) < 2:
            return list(episodes)
        ordered = sorted(episodes, key=lambda each: (-each.rewards.get(each.turns[0].agent, 0.0), len(each.turns)))
        return [ordered[0], ordered[-1]]

    def _note(self, rows: Rows, scores: TeacherScores) -> None:
        taught = rows.batch.mask & np.isfinite(scores.logp)
        difference = scores.logp[taught] - rows.batch.token["logp_old"][taught]
        self.figures = {
            "gap": float(np.mean(np.expm1(difference) - difference)) if taught.any() else 0.0,
            "taught": float(taught.any(1).mean()),
            "shortened": scores.shortened,
            "dropped": scores.dropped,
            "skills": len(self.bank),
        }

    def _bound(self) -> Trainer:
        if self._trainer is None:
            raise UserError("skill teacher: call bind(trainer) first.")
        return self._trainer
