"""Overhead of the engine side by side with Concordia's and Sotopia's: `python benchmarks/engine.py [--quick]`.

The scene: each agent sees the line that was said last and says one of its own, which counts on from it; so the last
line proves that everybody heard. A script speaks for all. Peers take turns with ours on the same scene, in this
process; their folders (see `_engine_peers.py`) are named by ROLECRAFT_PEERS, and a peer that is not there is left out.

What each does for a line, so that a reader can judge how far the comparison is fair. No engine writes to disk, calls a
model or prints; each makes its world, agents and log anew or resets them in every run, and keeps its record in memory.

- Ours asks the world who acts, what each sees and what is legal, asks the policy, checks the answer, lets the world act
  and hashes its state (SHA-256 of canonical JSON) before and after each step. The record is a turn per line with
  observation, action, legal actions, hashes and notes; the world keeps its log of messages and a digest of it. The
  receipt of an action that was accepted at once, the seed of a decision and what the agent recalls are worked out when
  they are read, from what is on record; the script reads none of them, a policy that draws or recalls pays for it.
- Concordia asks its game master for everything: whether the scene is over, what each entity sees, who is next, in
  which form it may answer, and what comes of it, in strings that it parses; all at once, it does so in threads, so that
  slow models overlap (ours asks all in one call instead). Its log has one entry a step. It does not check whether an
  action is legal and hashes no state. `Concordia's engine alone` has entities and a game master of a line or two,
  which keep less than our world does: that favours Concordia.
- Sotopia asks its agents with asyncio, keeps every message to and from everyone as a pydantic object, asks its
  evaluators each turn whether the scene is over, and shows every agent all that was said in the last turn; our scene
  does the same against it (`whole`). In turn it also asks the others, who do nothing, which is its way and costs it.
  It hashes no state either.

The last entry is about generation: 32 agents decoded in one batch, against one agent at a time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))

import _engine_peers
from _engine_peers import line_after
from _entries import Entry, entry
from rolecraft.agents import RolePolicy, ScriptedPolicy
from rolecraft.worlds import MessageLog, Table, World, one_line_per_message, play, play_all

if TYPE_CHECKING:
    from rolecraft.models import LanguageModel

ORDERS = {True: "all at once", False: "in turn"}
BATCH = 32


class TalkingScene(World):
    """Agents who each see the last line, and speak all at once or in turn."""

    name = "talking-scene"

    def __init__(self, agents: int, lines: int, together: bool, whole: bool = False) -> None:
        """Seat agents who say so many lines in all, and see the last one, or with `whole` all of the last step."""
        self.agents = tuple(f"agent-{place}" for place in range(agents))
        self._lines, self._together, self._whole = lines, together, whole

    def reset(self, seed: int) -> None:
        """Start in silence."""
        self._log, self._step, self._last, self._said = MessageLog(), 0, "(silence)", ""

    @property
    def acting(self) -> tuple[str, ...]:
        """Everybody, or the one whose turn it is."""
        if len(self._log) >= self._lines:
            return ()
        return self.agents if self._together else (self.agents[self._step % len(self.agents)],)

    def observe(self, agent: str) -> str:
        """Return the last line, or all lines of the last step."""
        return self._last

    def legal(self, agent: str) -> None:
        """Return None: any text."""

    def state(self) -> Mapping[str, Any]:
        """Return the last line and a running digest of all lines: what is said later depends on no other."""
        return {"step": self._step, "last": self._last, "said": self._said}

    def rewards(self) -> Mapping[str, float]:
        """Return nothing earned."""
        return dict.fromkeys(self.agents, 0.0)

    def _apply(self, actions: Mapping[str, str]) -> None:
        self._log.say(self._step, actions)
        self._last = one_line_per_message(self._log[-len(actions) if self._whole else -1 :])
        self._said = hashlib.sha256(json.dumps([self._said, *actions.items()]).encode()).hexdigest()
        self._step += 1


def ours(agents: int, lines: int, together: bool, whole: bool = False) -> Callable[[], str]:
    """Return a call that plays the scene with the rules' defaults and returns the last line."""
    scene = TalkingScene(agents, lines, together, whole)
    policy = ScriptedPolicy(lambda view: line_after(view.observation))

    def run() -> str:
        episode = play(scene, dict.fromkeys(scene.agents, policy), 1, limit=lines)
        assert episode.ended == "over"
        assert episode.states == "hashed"
        assert len(episode.turns) == lines
        return episode.turns[-1].action

    return run


def steps_per_second(
    sides: Mapping[str, tuple[int, Callable[[], str]]], last: str, rounds: int
) -> dict[str, list[float]]:
    """Time the sides by turns, after a run of each that does not count.

    Args:
        sides: Lines said in a run, and the run, which returns the last line.
        last: What the last line must hold.
        rounds: Runs of each side.

    Raises:
        AssertionError: If a side plays another scene.
    """
    speed: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name in random.Random(number).sample(sorted(sides), len(sides)):
            lines, run = sides[name]
            start = time.perf_counter()
            said = run()
            taken = time.perf_counter() - start
            assert last in said, f"{name} ended with {said!r}, expected {last!r}"
            if number:
                speed[name].append(lines / taken)
    return speed


def scaling(sizes: Sequence[int], rounds: int) -> list[Entry]:
    """Compare the largest population with that of 100 agents, both ours, and tell the speed of all."""
    found = []
    for together, order in ORDERS.items():
        speed: dict[int, list[float]] = {size: [] for size in sizes}
        for number in range(rounds + 1):
            for size in random.Random(number).sample(list(sizes), len(sizes)):
                lines = max(size, 10_000 if number else 1_000)
                run = ours(size, lines, together)
                start = time.perf_counter()
                said = run()
                taken = time.perf_counter() - start
                assert said == f"line {lines // size if together else lines}"
                if number:
                    speed[size].append(lines / taken)
        told = ", ".join(f"{size:,}: {statistics.median(speed[size]):,.0f}" for size in sizes)
        found.append(
            entry(
                f"engine, {order}, {sizes[-1]:,} agents against {sizes[1]:,} of our own",
                "agent-steps/s",
                speed[sizes[-1]],
                speed[sizes[1]],
                f"scripted talking scene, 10,000 lines a run, {rounds} runs of each size by turns; medians by number "
                f"of agents: {told}",
            )
        )
    return found


def peers(sizes: Sequence[int], rounds: int) -> Iterator[list[Entry]]:
    """Compare with every peer that is there, in both orders."""
    for peer in _engine_peers.PEERS:
        missing = peer.missing()
        if missing:
            print(f"left out: {peer.name} ({missing})", file=sys.stderr)
            continue
        for together, order in ORDERS.items():
            for size in sizes:
                lines = peer.lines(size, together)
                many = max(lines, 2_000 // size * size if together else 2_000)
                own = {
                    "few": (lines, ours(size, lines, together, peer.whole)),
                    "peer": (lines, peer.scene(size, lines, together)),
                }
                speed = steps_per_second(own, f"line {lines // size if together else lines}", rounds)
                long = ours(size, many, together, peer.whole)
                start = time.perf_counter()
                long()
                taken = time.perf_counter() - start
                yield [
                    entry(
                        f"engine, {order}, {size} agents, against {peer.name}",
                        "agent-steps/s",
                        speed["few"],
                        speed["peer"],
                        f"the same scripted scene of {lines} lines, {rounds} runs of each by turns; {peer.conditions}; "
                        f"ours over {many} lines: {many / taken:,.0f}",
                    )
                ]


def batched_generation(model: LanguageModel, agents: int, rounds: int, tokens: int) -> Entry:
    """Compare agents who speak at once through one shared policy with the same agents asked one at a time.

    Every agent sits at a table of its own, so that both sides play the same episodes: beside each other, or one after
    another.
    """
    from rolecraft.models import Sampling

    policy = RolePolicy(model, {}, Sampling(tokens, 0.7, 0.95))
    counts: list[int] = []

    def tables() -> list[Table]:
        scenes = [TalkingScene(1, 2, True) for _ in range(agents)]
        return [Table(scene, dict.fromkeys(scene.agents, policy), seed) for seed, scene in enumerate(scenes)]

    def batch() -> int:
        return sum(turn.notes["tokens"] for episode in play_all(tables()) for turn in episode.turns)

    def singly() -> int:
        return sum(turn.notes["tokens"] for table in tables() for turn in play_all([table])[0].turns)

    speed: dict[str, list[float]] = {"batch": [], "singly": []}
    sides = {"batch": batch, "singly": singly}
    for number in range(rounds + 1):
        for name in random.Random(number).sample(sorted(sides), 2):
            start = time.perf_counter()
            spoken = sides[name]()
            taken = time.perf_counter() - start
            if number:
                speed[name].append(spoken / taken)
                counts.append(spoken)
    return entry(
        f"generation of {agents} agents in one batch, against one agent at a time",
        "tokens/s",
        speed["batch"],
        speed["singly"],
        f"{model.name}, play_all and RolePolicy, two turns of at most {tokens} new tokens for each of {agents} agents "
        f"({min(counts)} to {max(counts)} tokens a run), {rounds} runs of each by turns",
    )


def generation(rounds: int) -> list[Entry]:
    """Measure batched generation on the embedded model as it is loaded for users."""
    from rolecraft.models import LocalModel

    return [batched_generation(LocalModel.load(), BATCH, rounds, 32)]


def parts(quick: bool, generating: bool = True) -> Iterator[list[Entry]]:
    """Run one comparison after another."""
    yield scaling((10, 100, 1_000) if quick else (10, 100, 1_000, 10_000), 1 if quick else 5)
    yield from peers((10,) if quick else (10, 100), 1 if quick else 5)
    if generating:
        yield generation(1 if quick else 3)


def entries(quick: bool = False) -> list[Entry]:
    """Run everything; some minutes on two free cores."""
    return [line for part in parts(quick) for line in part]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer sizes and rounds")
    parser.add_argument("--no-generation", action="store_true", help="leave the language model out")
    arguments = parser.parse_args()
    for part in parts(arguments.quick, not arguments.no_generation):
        for line in part:
            print(json.dumps(line, ensure_ascii=False), flush=True)
