"""Agents of graded social skill: echo, greedy demand, fixed concession, an oracle; each reads what it is shown.

All keep nothing: whatever they go by stands in the observation. `BayesNegotiator` lies beside them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from rolecraft.agents.social._reading import SceneReading, read_scene
from rolecraft.errors import UserError
from rolecraft.models import LanguageModel, chat, choose
from rolecraft.worlds import Act, View
from rolecraft.worlds.social import SocialMove, phrase, possible_moves, say

NOTHING, GOODBYE = SocialMove("none"), SocialMove("leave", "Then we are done. Goodbye.")
FLOOR = 0.1
"""Share of its best that a conceding agent still wants in the end."""


def patience_of(traits: Mapping[str, float], default: int = 7) -> int:
    """Return after how many of its own acts an agent gives up: 4 to 9, more with its agreeableness."""
    level = traits.get("agreeableness")
    return default if level is None else 4 + round(5 * level)


def aspiration(acts: int, patience: int, floor: float = FLOOR) -> float:
    """Return the share of its best that a conceding agent wants: from 1 at its first act to `floor` at its last."""
    return max(floor, 1 - (1 - floor) * acts / max(1, patience - 1))


class SceneAgent(ABC):
    """A program in a scene whose terms can be settled; it leaves when they are."""

    def act(self, views: Sequence[View]) -> list[Act]:
        """Answer every view."""
        return [Act(self.decide(read_scene(view.observation)).text()) for view in views]

    def decide(self, reading: SceneReading) -> SocialMove:
        """Return what to do."""
        if reading.agreed is not None:
            return self.after(reading)
        return self.negotiate(reading)

    def after(self, reading: SceneReading) -> SocialMove:
        """Return what to do once terms are agreed."""
        return GOODBYE

    @abstractmethod
    def negotiate(self, reading: SceneReading) -> SocialMove:
        """Return what to do while nothing is agreed."""


class EchoAgent(SceneAgent):
    """Says what the other said last, with its offers, and accepts whatever it has echoed before."""

    def negotiate(self, reading: SceneReading) -> SocialMove:
        """Repeat the other's last words."""
        heard = [line for line in reading.said if line.sender != reading.me and line.kind == "says"]
        if not heard:
            return say("Hello.")
        if reading.standing and reading.standing in reading.tags("offer", mine=True):
            return say(phrase("accept", reading.standing))
        offered = [what for verb, what in heard[-1].tags if verb == "offer"]
        words = heard[-1].text.partition("<")[0].strip() or "Hello."
        return say(f"{words} <offer {offered[0]}>" if offered else words)


class GreedyAgent(SceneAgent):
    """Demands its best every time, presses every question, tells nothing, and gives way only when time runs out."""

    def __init__(self, content: float = 0.7, hurry: int = 5) -> None:
        """Set what it takes.

        Args:
            content: Share of its best for which it accepts at once.
            hurry: Turns before the end from which it accepts anything better than nothing.
        """
        self._content, self._hurry = content, hurry

    def negotiate(self, reading: SceneReading) -> SocialMove:
        """Demand, or take what is good enough."""
        best = max(reading.values, key=lambda term: reading.values[term])
        if reading.standing is not None:
            offered = reading.values[reading.standing]
            late = reading.turn > reading.turns - self._hurry
            if offered >= self._content * reading.values[best] or (late and offered > 0):
                return say(phrase("accept", reading.standing))
        words = phrase("offer", best)
        if reading.askable:
            words += " " + phrase("ask", reading.askable[reading.acts(mine=True) % len(reading.askable)])
        return say(words)


class ConcessionAgent(SceneAgent):
    """Starts from its best and gives way by a fixed schedule, whatever the other does; answers what it is asked.

    It wants `aspiration` of its best, offers the least that is enough, and leaves when its patience is used up. It
    tells facts when asked once, and its secret when asked `candour` times.
    """

    def __init__(self, candour: int = 2, curiosity: int = 1, patience: int | None = None) -> None:
        """Set its manner.

        Args:
            candour: How often it must be asked before it tells its secret.
            curiosity: How often it asks what it would like to learn; other topics once, with curiosity 1 or more.
            patience: Own acts until it leaves; None: by its agreeableness.
        """
        self._candour, self._curiosity, self._patience = candour, curiosity, patience

    def negotiate(self, reading: SceneReading) -> SocialMove:
        """Accept, offer, or give up, and answer and ask besides."""
        acts, patience = reading.acts(mine=True), self._patience or patience_of(reading.traits)
        if acts >= patience:
            return SocialMove("leave", "I do not think we can agree. Goodbye.")
        best = max(reading.values.values())
        wanted = max(aspiration(acts, patience) * best, 1e-9)
        words = answers(reading, self._candour)
        if reading.standing is not None and reading.values[reading.standing] >= wanted:
            return say(" ".join([phrase("accept", reading.standing), *words]))
        enough = [term for term, value in reading.values.items() if value >= wanted]
        offer = min(enough, key=lambda term: reading.values[term])
        return say(" ".join([phrase("offer", offer), *words, *questions(reading, self._curiosity)]))


def answers(reading: SceneReading, candour: int) -> list[str]:
    """Return answers to open questions: of facts when asked, of the secret when asked `candour` times."""
    asked, told = reading.tags("ask", mine=False), reading.tags("reveal", mine=True)
    open_ = [topic for topic in dict.fromkeys(asked) if topic in reading.facts and topic not in told]
    return [
        phrase("reveal", f"{topic}: {reading.facts[topic]}")
        for topic in open_
        if topic != reading.secret or asked.count(topic) >= candour
    ]


def questions(reading: SceneReading, curiosity: int) -> list[str]:
    """Return the next question: what is worth points up to `curiosity` + 1 times, anything else once."""
    if curiosity < 1:
        return []
    asked, told = reading.tags("ask", mine=True), reading.tags("reveal", mine=False)
    for topic in sorted(reading.askable, key=lambda topic: -reading.learn.get(topic, 0.0)):
        most = curiosity + 1 if reading.learn.get(topic, 0.0) > 0 else 1
        if topic not in told and asked.count(topic) < most:
            return [phrase("ask", topic)]
    return []


class OracleAgent(SceneAgent):
    """Knows the other's values and patience, and takes the most that a `ConcessionAgent` with them would give."""

    def __init__(self, values: Mapping[str, float], patience: int, candour: int = 2) -> None:
        """Tell it all.

        Args:
            values: The other's.
            patience: The other's.
            candour: The other's: what is worth learning is asked that often.
        """
        self._theirs, self._patience, self._candour = dict(values), patience, candour

    def negotiate(self, reading: SceneReading) -> SocialMove:
        """Hold out until the turn at which the other would take what is best for this agent."""
        acts = reading.acts(mine=False)
        gains = [self._gain(reading, later) for later in range(acts, self._patience)]
        if not gains:
            return say(phrase("accept", reading.standing)) if reading.standing else NOTHING
        now, later = gains[0], max(gains[1:], key=lambda gain: gain[0], default=(0.0, ""))
        standing = reading.values[reading.standing] if reading.standing else 0.0
        if standing > 0 and standing >= max(now[0], later[0]):
            return say(phrase("accept", reading.standing or ""))
        asks = questions(reading, self._candour - 1 if reading.learn else 0)
        if now[0] >= later[0] and now[1] and not (asks and later[0] == now[0]):
            return say(" ".join([phrase("offer", now[1]), *asks]))
        best = max(reading.values, key=lambda term: reading.values[term])
        return say(" ".join([phrase("offer", best), *asks]))

    def _gain(self, reading: SceneReading, acts: int) -> tuple[float, str]:
        """Return the most that an offer brings which the other answers at some act of its own, and the offer."""
        wanted = max(aspiration(acts, self._patience) * max(self._theirs.values()), 1e-9)
        taken = {term: value for term, value in reading.values.items() if self._theirs[term] >= wanted and value > 0}
        best = max(taken, key=lambda term: taken[term], default="")
        return taken.get(best, 0.0), best


class SceneRandom:
    """Takes any of the acts that are open to it, each as likely as the next."""

    def act(self, views: Sequence[View]) -> list[Act]:
        """Answer every view."""
        menus = [open_moves(read_scene(view.observation)) for view in views]
        return [Act(menu[int(view.rng().integers(len(menu)))].text()) for menu, view in zip(menus, views, strict=True)]


class SceneChoice:
    """A language model in a scene: it takes the likeliest of the acts that are open to it, as plain sentences.

    The acts are those of the world's own menu; they are read from the observation, so that the other may speak freely.
    """

    def __init__(self, model: LanguageModel, system: str = "", blind: bool = False) -> None:
        """Bind a model.

        Args:
            model: Scores the acts.
            system: The system text.
            blind: Hide the goal and what is worth how much: the control that shows what the goal does.
        """
        self._model, self._system, self._blind = model, system, blind

    def act(self, views: Sequence[View]) -> list[Act]:
        """Answer every view, all scored in one call."""
        readings = [read_scene(view.observation) for view in views]
        menus = [open_moves(reading) for reading in readings]
        chats = [chat(self._shown(view.observation), self._system) for view in views]
        options = [[move.argument or "(I say nothing.)" for move in menu] for menu in menus]
        chosen = choose(self._model, chats, options)
        return [Act(menu[place].text(), {"option": place}) for menu, place in zip(menus, chosen, strict=True)]

    def _shown(self, observation: str) -> str:
        text = observation.partition(" Reply with one JSON object")[0] + " What do you say?"
        return without_goal(text) if self._blind else text


def open_moves(reading: SceneReading) -> tuple[SocialMove, ...]:
    """Return the acts open to an agent, from what it is shown.

    Raises:
        UserError: If the scene has no terms.
    """
    if not reading.values:
        raise UserError("the scene has no terms to choose among; use a policy that speaks freely.")
    facts = [f"{topic}: {fact}" for topic, fact in reading.facts.items()]
    return possible_moves(
        tuple(reading.values), reading.askable, facts, reading.standing, settled=reading.agreed is not None
    )


def without_goal(observation: str) -> str:
    """Return an observation without the agent's goal and without what anything is worth to it."""
    setting, mark, rest = observation.partition("\nSo far:\n")
    kept: list[str] = []
    in_values = False
    for line in setting.splitlines():
        in_values = line.startswith("Worth to you in points") or (in_values and line.startswith("- "))
        if not in_values and not line.startswith(("Your goal", "Worth to you", "Lost to you")):
            kept.append(line)
    return "\n".join(kept) + mark + rest
