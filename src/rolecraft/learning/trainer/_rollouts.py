"""Playing with policies under training, and turning episodes into rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rolecraft.errors import UserError
from rolecraft.learning.credit import CreditBatch, CreditResult, Stage, assign_credit
from rolecraft.learning.policy import LearnerSeat, Reply, TokenPolicy, reply_of
from rolecraft.learning.policy._seat import ENDED, LOGP, TOKENS
from rolecraft.learning.trainer._silent import SilentSeat, counts_silent, silent_batch, with_silent, without_silent
from rolecraft.worlds import Episode, Policy, Rules, Table, Turn, World, play_all

if TYPE_CHECKING:
    from rolecraft.learning.trainer._guard import TrainGuard

Route = Callable[[str, str | None], str]
"""From an agent and the role it plays to the name of the policy that acts for it."""
Objectives = Callable[[Episode, str], Mapping[str, float]]
"""From an episode and an agent to its rewards that are kept apart, by name; the same names in every episode."""
Keys = Callable[[Episode, str], Mapping[str, int]]
"""From an episode and an agent to further keys of its rows; the same names in every episode."""
Learner = Callable[["Start", str], str | None]
"""From a start and an agent to the name of the policy under training in that seat; None: an opponent sits there."""


@dataclass(frozen=True)
class Start:
    """Where an episode begins."""

    game: int
    """Which of the worlds."""
    task: int
    """Episodes of the same task have the same world, seed and roles."""
    seed: int
    sample: int
    """Number among the episodes of its task."""
    roles: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Rows:
    """What an iteration trains on: one row per reply of a policy under training."""

    replies: Sequence[Reply]
    policies: Sequence[str]
    """Name of each row's policy."""
    batch: CreditBatch
    names: Mapping[str, Sequence[str]]
    """What the numbers of the keys `agent`, `role`, `policy` and `game` stand for."""
    turns: Sequence[Turn]
    silent: CreditBatch | None = None
    """Seats under training that never moved, as rows without a trained token; they count in running baselines. None:
    there are none, or nobody looked for them."""

    def of(self, policy: str) -> list[int]:
        """Return the rows of a policy."""
        return [row for row, name in enumerate(self.policies) if name == policy]

    def with_tokens(self, **columns: Any) -> Rows:
        """Return a copy with more token columns."""
        return replace(self, batch=replace(self.batch, token={**self.batch.token, **columns}))

    def credit(self, stages: Sequence[Stage], state: Mapping[str, Any] | None = None) -> CreditResult:
        """Give credit by a rule; silent seats enter where a stage counts them, and the result has the other rows alone.

        Args:
            stages: The rule.
            state: What the last call returned; None at the start.

        Raises:
            UserError: As `rolecraft.learning.credit.assign_credit`.
        """
        if self.silent is None or not counts_silent(stages):
            return assign_credit(self.batch, stages, state)
        return without_silent(assign_credit(with_silent(self.batch, self.silent), stages, state), len(self.replies))


def play_starts(
    makers: Sequence[Callable[[], World]],
    starts: Sequence[Start],
    seats: Mapping[str, LearnerSeat],
    route: Route,
    limit: int,
    opponents: Callable[[Start], Mapping[str, Policy]] | None = None,
    guard: TrainGuard | None = None,
) -> list[Episode]:
    """Play an episode from each start; all that are played at once share their model calls.

    Args:
        makers: Make the worlds.
        starts: Where to begin.
        seats: Policies under training, by name.
        route: Which of them acts for whom.
        limit: Most steps.
        opponents: Policies that are not trained, by agent.
        guard: What every action passes; None: nothing.
    """
    tables = []
    guarded: dict[int, Policy] = {}
    if guard is not None:
        guarded = {id(seat): guard.seated(seat, trained=True) for seat in seats.values()}
    for start in starts:
        world = makers[start.game]()
        given = dict(opponents(start)) if opponents else {}
        policies: dict[str, Policy] = {
            agent: given[agent] if agent in given else seats[route(agent, start.roles.get(agent))]
            for agent in world.agents
        }
        if guard is not None:
            for each in policies.values():
                guarded.setdefault(id(each), guard.seated(each, trained=False))
            policies = {agent: guarded[id(each)] for agent, each in policies.items()}
        tables.append(Table(world, policies, start.seed, start.roles, director=_Sample(start.sample)))
    return play_all(tables, Rules(limit=limit, repairs=0, on_illegal="halt", hashes=False))


@dataclass(frozen=True)
class Numbering:
    """Stable numbers for the names that keys stand for."""

    games: Sequence[str]
    agents: Sequence[str]
    roles: Sequence[str]
    policies: Sequence[str]

    def names(self) -> dict[str, Sequence[str]]:
        """Return the names by key."""
        return {"game": self.games, "agent": self.agents, "role": self.roles, "policy": self.policies}


def gather(
    episodes: Sequence[Episode],
    starts: Sequence[Start],
    policies: Mapping[str, TokenPolicy],
    numbering: Numbering,
    *,
    illegal: tuple[float, float],
    keep_cut: bool = True,
    mask_truncated: bool = False,
    objectives: Objectives | None = None,
    more_keys: Keys | None = None,
    guard: TrainGuard | None = None,
) -> Rows:
    """Turn episodes into rows.

    Keys: `task, traj, step, agent, role, turn, policy, game`; an agent without a role has itself as its role. Row
    columns: `outcome, steps_to_end` (own turns that follow), `duration` (tokens). Token columns: `logp_old`. Masked
    are padding and tokens that were the only ones possible.

    Args:
        episodes: One per start.
        starts: Where they began.
        policies: By name.
        numbering: Of the keys.
        illegal: Rewards of the offender and of the others where an illegal action ended an episode.
        keep_cut: Episodes that reached the limit count; else their rows are not valid.
        mask_truncated: Replies without an end are not trained.
        objectives: Rewards to keep apart; all rows of an agent in an episode have the same.
        more_keys: Keys beside those above.
        guard: What blocked replies teach, where there are any.

    Raises:
        UserError: If a reward is not finite, names differ between episodes, or a key is taken.
    """
    replies, turns, names, keys, columns, valid = [], [], [], [], [], []
    apart: list[Mapping[str, float] | None] = []
    added: list[Mapping[str, int] | None] = []
    index = {key: {name: n for n, name in enumerate(found)} for key, found in numbering.names().items()}
    for traj, (episode, start) in enumerate(zip(episodes, starts, strict=True)):
        earned = outcomes(episode, illegal)
        fine = episode.ended != "failed" and (keep_cut or episode.ended != "limit")
        for agent in dict.fromkeys(turn.agent for turn in episode.turns):
            own = [turn for turn in episode.of(agent) if TOKENS in turn.notes]
            role = episode.roles.get(agent)
            price = guard.price(episode, agent) if guard else 0.0
            paid = objectives(episode, agent) if objectives and own and episode.ended != "failed" else None
            apart += [paid] * len(own)
            added += [more_keys(episode, agent) if more_keys and own else {}] * len(own)
            for place, turn in enumerate(own):
                name = str(turn.notes["policy"])
                replies.append(reply_of(policies[name], turn, role))
                turns.append(turn)
                names.append(name)
                keys.append((
                    start.task, traj, turn.step, index["agent"][agent], index["role"][role or agent], place,
                    index["policy"][name], start.game,
                ))  # fmt: skip
                columns.append((earned[agent] - price, len(own) - 1 - place, len(turn.notes[TOKENS])))
                valid.append(fine)
    mask, logp = _tokens(replies, turns, mask_truncated)
    if guard is not None:
        mask[[row for row, turn in enumerate(turns) if guard.untrained(turn)]] = False
    table = np.array(keys, dtype=np.int64).reshape(len(replies), 8)
    numbers = np.array(columns, dtype=np.float64).reshape(len(replies), 3)
    taken = dict(zip(("task", "traj", "step", "agent", "role", "turn", "policy", "game"), table.T, strict=True))
    batch = CreditBatch(
        mask,
        {**taken, **_by_name("keys", added, np.int64, taken)},
        dict(zip(("outcome", "steps_to_end", "duration"), numbers.T, strict=True)),
        {"logp_old": logp},
        _by_name("objectives", apart, np.float64),
        valid=np.array(valid, dtype=bool),
    )
    return Rows(replies, names, batch, numbering.names(), turns)


def silent_seats(
    episodes: Sequence[Episode],
    starts: Sequence[Start],
    rows: Rows,
    numbering: Numbering,
    learner: Learner,
    *,
    illegal: tuple[float, float],
    keep_cut: bool = True,
    objectives: Objectives | None = None,
    more_keys: Keys | None = None,
) -> CreditBatch | None:
    """Return the seats under training that never moved, as rows without a trained token; None if there are none.

    Args:
        episodes: One per start.
        starts: Where they began.
        rows: What `gather` made of them.
        numbering: Of the keys.
        learner: Who is trained where.
        illegal: As in `gather`; so are those below.
        keep_cut: Rewards of episodes that reached the limit are known.
        objectives: Rewards to keep apart.
        more_keys: Keys beside those that every row has.

    Raises:
        UserError: If a reward is not finite.
    """
    found = []
    index = {key: {name: n for n, name in enumerate(names)} for key, names in numbering.names().items()}
    for traj, (episode, start) in enumerate(zip(episodes, starts, strict=True)):
        earned, moved = outcomes(episode, illegal), {turn.agent for turn in episode.turns}
        for agent in (each for each in earned if each not in moved):
            if (policy := learner(start, agent)) is None:
                continue
            role = episode.roles.get(agent) or agent
            keys = {"task": start.task, "traj": traj, "step": 0, "turn": 0, "game": start.game}
            keys |= {"agent": index["agent"][agent], "role": index["role"][role], "policy": index["policy"][policy]}
            keys |= more_keys(episode, agent) if more_keys else {}
            known = episode.ended != "failed" and (keep_cut or episode.ended != "limit")
            paid = objectives(episode, agent) if objectives and known else {}
            found.append(SilentSeat(keys, earned[agent], known, paid))
    return silent_batch(found, rows.batch) if found else None


def outcomes(episode: Episode, illegal: tuple[float, float]) -> dict[str, float]:
    """Return what each agent is paid at the end.

    Raises:
        UserError: If a reward is not finite.
    """
    if episode.ended == "illegal":
        offenders = {turn.agent for turn in episode.turns if turn.fallback}
        return {agent: illegal[0] if agent in offenders else illegal[1] for agent in episode.rewards}
    for agent, reward in episode.rewards.items():
        if not np.isfinite(reward):
            raise UserError(f"{episode.world}, seed {episode.seed}: the reward of {agent} is {reward}.")
    return dict(episode.rewards)


def _by_name(
    what: str, rows: Sequence[Mapping[str, Any] | None], dtype: Any, taken: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return mappings as columns, 0 in rows that have none; all others must have the same names."""
    known = [row for row in rows if row is not None]
    names = list(known[0]) if known else []
    for row in known:
        if set(row) != set(names):
            raise UserError(f"{what}: expected the same names in every episode, got {sorted(names)} and {sorted(row)}.")
    double = [name for name in names if name in (taken or {})]
    if double:
        raise UserError(f"{what}: {double[0]!r} is a key of every row already; choose another name.")
    return {name: np.array([(row or {}).get(name, 0) for row in rows], dtype=dtype) for name in names}


@dataclass(frozen=True)
class _Sample:
    """Lets the episodes of a task differ by the draws of their policies alone."""

    number: int

    def __call__(self, agent: str, step: int, turns: Sequence[Turn]) -> Mapping[str, Any] | None:
        return {"sample": self.number} if self.number else None


def _tokens(replies: Sequence[Reply], turns: Sequence[Turn], mask_truncated: bool) -> tuple[Any, Any]:
    width = max((len(reply.tokens) for reply in replies), default=1)
    mask, logp = np.zeros((len(replies), width), dtype=bool), np.zeros((len(replies), width))
    for row, (reply, turn) in enumerate(zip(replies, turns, strict=True)):
        size = len(reply.tokens)
        logp[row, :size] = turn.notes[LOGP]
        if mask_truncated and not turn.notes[ENDED]:
            continue
        mask[row, :size] = (
            True if reply.options is None else [len(each) > 1 for each in reply.options.along(reply.tokens)]
        )
    return mask, logp
