"""What a simulation's run directory holds, and what it cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rolecraft._run import RunView, derive_seed
from rolecraft.errors import UserError, did_you_mean
from rolecraft.guard._choice import decision_rows
from rolecraft.worlds import Episode, Turn, tokens_of

KIND = "simulation"
DECISIONS = "decisions"
"""Stage of what guards decided, keyed `arm/number/step/agent/place`."""
EPISODES, STEPS, DRIFT, FAILURES, SEATS = "episodes", "steps", "drift", "failures", "seats"
"""Stages: finished episodes without their turns, keyed `arm/number`; steps, keyed `arm/number/step`; what the drift
watch read, keyed `arm/number/step/agent`; answers that did not come, keyed `arm/number/place`; the role of every agent,
the same in all arms, keyed `number`."""


@dataclass(frozen=True)
class UnfinishedEpisode:
    """What was played so far of an episode that has not come to its end."""

    world: str
    """Name of the world in the study."""
    seed: int
    roles: Mapping[str, str]
    """Agent to role id; empty in a run that was begun before these were stored."""
    turns: tuple[Turn, ...]
    """Of all stored steps; with workers, steps are stored only once their episodes have ended."""
    failures: tuple[Mapping[str, Any], ...]
    """Answers that did not come and stopped it: step, agent and reason."""

    def row(self) -> dict[str, Any]:
        """Return it as JSON holds it; `finished` tells it from an episode."""
        return {"finished": False, **asdict(self)}


def read_episodes(run: RunView) -> dict[str, dict[str, Any]]:
    """Return the finished episodes of a run by key, without their turns."""
    return run.rows(EPISODES)


def read_episode(run: RunView, key: str) -> Episode:
    """Return one episode with its turns.

    Raises:
        UserError: If the run has no such episode, or it is not finished.
    """
    row = run.get(EPISODES, key)
    if row is None:
        known = list(run.rows(EPISODES))
        raise UserError(
            f"{run.directory}: no finished episode {key!r} (episodes: {', '.join(known[:8]) or 'none yet'}"
            f"{', ...' if len(known) > 8 else ''}).{did_you_mean(key, known)}"
        )
    names = ("world", "seed", "roles", "rewards", "outcome", "ended", "states")
    turns = [asdict(turn) for turn in stored_turns(run, key)]
    facts = {name: row[name] for name in names} | {"limit": row.get("limit", "")}
    return Episode.from_row(facts | {"turns": turns})


def read_unfinished(run: RunView, key: str) -> UnfinishedEpisode:
    """Return what was played so far of an episode that is not finished.

    Args:
        run: Of a simulation.
        key: `arm/number`.

    Raises:
        UserError: If the study has no such episode, or it is finished.
    """
    arms, count = run.config["arms"], run.config["episodes"]
    arm, _, number = key.rpartition("/")
    if arm not in arms or number not in map(str, range(count)):
        known = [f"{name}/{place}" for name in arms for place in range(count)]
        raise UserError(
            f"{run.directory}: there is no episode {key!r}; the study has {' and '.join(arms)}, each with /0 to "
            f"/{count - 1}.{did_you_mean(key, known)}"
        )
    if run.get(EPISODES, key) is not None:
        raise UserError(f"{run.directory}: episode {key!r} is finished; read_episode reads it.")
    return UnfinishedEpisode(
        run.config["world"]["name"],
        derive_seed(run.config["seed"], "episode", int(number)),
        run.get(SEATS, number) or {},
        stored_turns(run, key),
        tuple(row for row in read_failures(run) if f"{row['arm']}/{row['number']}" == key),
    )


def stored_turns(run: RunView, key: str) -> tuple[Turn, ...]:
    """Return the turns of an episode so far."""
    turns: list[Turn] = []
    for step in range(2**31):
        row = run.get(STEPS, f"{key}/{step}")
        if row is None:
            return tuple(turns)
        turns += [Turn.from_row(turn) for turn in row]
    return tuple(turns)


def read_drift(run: RunView) -> list[dict[str, Any]]:
    """Return what the drift watch read, a row per message, in the order it was said."""
    return list(run.rows(DRIFT).values())


def read_decisions(run: RunView) -> list[dict[str, Any]]:
    """Return what guards decided, a row per decision, in order."""
    return list(run.rows(DECISIONS).values())


def read_failures(run: RunView) -> list[dict[str, Any]]:
    """Return the answers that did not come and ended an episode, also of episodes that were finished later."""
    return list(run.rows(FAILURES).values())


def read_cost(run: RunView) -> dict[str, Any]:
    """Return what all stored steps took: `decisions`, `prompt_tokens`, `new_tokens`, and `usd` where prices are known.

    Tokens that were not counted, those of choices, are taken as one per four characters.
    """
    decisions = prompt = new = 0
    for row in run.rows(STEPS).values():
        for turn in row:
            decisions += len(turn["receipts"])
            used = tokens_of(Turn.from_row(turn))
            prompt, new = prompt + used[0], new + used[1]
    prices = (run.config.get("serving") or {}).get("prices")
    usd = (prompt * prices[0] + new * prices[1]) / 1e6 if prices else None
    return {"decisions": decisions, "prompt_tokens": prompt, "new_tokens": new, "usd": usd}


def drift_rows(key: str, turns: Iterable[Turn], roles: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the rows of the drift watch for new turns of an episode."""
    rows = {}
    arm, number = key.rsplit("/", 1)
    for turn in turns:
        notes = turn.notes.get("drift")
        if notes is None:
            continue
        state, control = notes["state"] or {}, notes["control_state"] or {}
        rows[f"{key}/{turn.step}/{turn.agent}"] = {
            "arm": arm,
            "number": int(number),
            "step": turn.step,
            "agent": turn.agent,
            **{name: notes[name] for name in ("role", "turn", "projection", "control", "score", "watched")},
            "limit": state.get("limit"),
            "drifted": state.get("drifted", False),
            "alarms": state.get("alarms", 0),
            "control_alarms": control.get("alarms", 0),
            "held": turn.notes.get("held"),
        }
    return rows


def guard_rows(key: str, turns: Iterable[Turn]) -> dict[str, dict[str, Any]]:
    """Return the rows of what guards decided in new turns of an episode."""
    arm, number = key.rsplit("/", 1)
    return {
        f"{key}/{turn.step}/{turn.agent}/{place}": {
            "arm": arm, "number": int(number), "step": turn.step, "agent": turn.agent, **row,
        }
        for turn in turns
        for place, row in enumerate(decision_rows(turn.notes))
    }  # fmt: skip


def stopped_by_guard(turn: Turn) -> bool:
    """Return whether a turn has no action because a guard ended the episode: that is an end, and no failure."""
    return "failed" in turn.notes and bool((turn.notes.get("guard") or {}).get("stopped"))


def _guarded(episode: Episode) -> dict[str, Any]:
    """Return how often guards refused, and whether one ended the episode; nothing where no guard had to decide."""
    said = [row for turn in episode.turns for row in decision_rows(turn.notes)]
    refused = sum(row["effect"] != "allow" for row in said)
    return {"refused": refused, "stopped": any(map(stopped_by_guard, episode.turns))} if said else {}


def episode_row(
    key: str, episode: Episode, unscreened: Sequence[str], failures: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the row of a finished episode: its facts without its turns, and the marks on it.

    Args:
        key: `arm/number`.
        episode: With its turns.
        unscreened: Roles in it that no screen let in.
        failures: Rows of answers that did not come and had stopped it before.
    """
    arm, number = key.rsplit("/", 1)
    row = episode.row()
    turns = row.pop("turns")
    silent = [
        {"step": turn["step"], "agent": turn["agent"], "reason": reason}
        for turn in turns
        for reason in turn["notes"].get("failures", ())
    ]
    stopped = [{name: row[name] for name in ("step", "agent", "reason")} for row in failures]
    return {
        "arm": arm,
        "number": int(number),
        "fallbacks": episode.fallbacks,
        "unscreened": list(unscreened),
        "failures": [*stopped, *silent],
        **_guarded(episode),
        "interventions": sum(len(turn["notes"].get("interventions", {}).get("applied", ())) for turn in turns),
        **row,
        "steps": len({turn["step"] for turn in turns}),
    }
