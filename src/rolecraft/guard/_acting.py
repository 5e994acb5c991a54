"""Guards of roles that act in worlds: every tool call and, where the rules speak of it, every action passes them.

A guard begins anew with every episode. What rules have changed since, and whether one has ended the episode, stands in
the notes of the agent's turns; so it is on record, and an episode that is resumed goes on from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.errors import UserError, did_you_mean
from rolecraft.guard._chain import decide_closed
from rolecraft.guard._checker import PolicyGuard
from rolecraft.guard._decision import Action, Decision, Guard, ToolCall
from rolecraft.guard._enforcer import Approve, Enforcer
from rolecraft.guard._policy import Policy

if TYPE_CHECKING:
    from rolecraft.conditioning import Direction, Intervention
    from rolecraft.models import LanguageModel
    from rolecraft.worlds import Act, View
    from rolecraft.worlds import Policy as Player

ACT = "act"
"""The tool whose rules speak of what a role does in its world."""
ACT_ARGUMENTS = ("action", "text")
"""Its arguments: `action` is what is done or said; `text` is the same where the world takes any text."""
NOTE, PERMITTED = "guard", "permitted"
"""Where an act's notes hold what was decided, and what of the legal actions was offered."""
UNLOGGED = ("number", "time", "principal")
"""Of the log's columns, those that the notes of a turn know already, or must not hold: a replay has other times."""


class RoleGuards:
    """Guards by role, for agents that act in worlds.

    The principal is the role that an agent plays, or the agent's own name where it plays none. What an update changes
    holds for the agent that made the call, until its episode ends.

    Args:
        guards: By role id: a policy, or any guard. Only policies (and `PolicyGuard`) begin anew with every episode.
        default: Of all other roles; None: they have no guard.
        approve: Asked where a rule says `ask`; without it such calls are blocked.
        patience: Seconds that `approve` may take.

    Raises:
        UserError: If a policy cannot be compiled, or rules for `act` restrict an argument that it does not have.
    """

    def __init__(
        self,
        guards: Mapping[str, Policy | Guard] | None = None,
        default: Policy | Guard | None = None,
        *,
        approve: Approve | None = None,
        patience: float = 60.0,
    ) -> None:
        self._guards = {role: _guard_of(each) for role, each in (guards or {}).items()}
        self._default = None if default is None else _guard_of(default)
        self._approve, self._patience = approve, patience

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what another process makes for itself: guards hold locks."""
        if any(not isinstance(guard, PolicyGuard | None) for guard in (*self._guards.values(), self._default)):
            raise UserError("only guards made of policies go to other processes; use one worker.")
        return {"guards": self.policies, "default": self.default_policy, "rest": (self._approve, self._patience)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        approve, patience = state["rest"]
        RoleGuards.__init__(self, state["guards"], state["default"], approve=approve, patience=patience)

    @property
    def policies(self) -> dict[str, Policy]:
        """The policies by role, without the default."""
        return {role: guard.policy for role, guard in self._guards.items() if isinstance(guard, PolicyGuard)}

    @property
    def default_policy(self) -> Policy | None:
        """The policy of all other roles, where there is one."""
        return self._default.policy if isinstance(self._default, PolicyGuard) else None

    def caps(
        self, model: LanguageModel, roles: Iterable[str], directions: Mapping[str, Direction]
    ) -> dict[str, tuple[Intervention, ...]]:
        """Return what the policies' caps do to a model, by role; roles without a cap are left out.

        Args:
            model: Plays the roles.
            roles: Who acts.
            directions: The roles' own, for caps that name no file.

        Raises:
            UserError: If a role has a cap and the model cannot be capped, or its direction cannot be used.
        """
        found = {}
        for role in roles:
            guard = self.of(role)
            policy = guard.policy if isinstance(guard, PolicyGuard) else None
            cap = (policy.caps.get(role) or policy.cap) if policy else None
            if cap is not None and policy is not None:
                found[role] = cap.interventions(model, role, directions.get(role), policy.folder)
        return found

    def of(self, role: str) -> Guard | None:
        """Return the guard of a role as every episode begins with it."""
        return self._guards.get(role, self._default)

    def begin(self, view: View, notes: Mapping[str, Any] | None = None) -> TurnGuard | None:
        """Return the guard of an agent for one turn; None if its role has none.

        Args:
            view: The agent's decision.
            notes: Of an act that has begun the turn already, by calls of tools.
        """
        role = view.role or view.agent
        guard = self.of(role)
        if guard is None:
            return None
        earlier = view.history[-1].notes.get(NOTE) if view.history else None
        begun = (notes or {}).get(NOTE) or (view.orders or {}).get(NOTE)
        return TurnGuard(role, guard, earlier or {}, begun, self._approve, self._patience)


class TurnGuard:
    """What one agent may still do, during one turn."""

    def __init__(
        self,
        role: str,
        guard: Guard,
        earlier: Mapping[str, Any],
        begun: Mapping[str, Any] | None = None,
        approve: Approve | None = None,
        patience: float = 60.0,
    ) -> None:
        """Put the guard into the state that its notes say.

        Args:
            role: The principal.
            guard: As episodes begin with it.
            earlier: Notes of the agent's last turn.
            begun: Notes of this turn so far, which go on from those.
            approve: As for `RoleGuards`.
            patience: Likewise.
        """
        state = begun if begun is not None else earlier
        self.role = role
        self._others = [each for each in state.get("updates", ()) if each[0] != role]
        updates = [each for each in state.get("updates", ()) if each[0] == role]
        self._guard = guard.resumed(updates) if isinstance(guard, PolicyGuard) else guard
        self._before = [dict(row) for row in (begun or {}).get("decisions", ())]
        self._enforcer = Enforcer(self._guard, approve=approve, patience=patience)
        if state.get("stopped"):
            self._enforcer.stopped = Decision("stop", *state["stopped"])
        self.passed = False
        """Whether something else was done than what the agent wanted to do."""

    @property
    def stopped(self) -> str:
        """Why a rule has ended the episode; an empty text if none has."""
        stopped = self._enforcer.stopped
        return "" if stopped is None else f"{stopped.rule}: {stopped.reason}"

    @property
    def acts(self) -> bool:
        """Whether the guard speaks of actions: a policy does where it has rules for `act`."""
        return not isinstance(self._guard, PolicyGuard) or bool(self._guard.rules(self.role).get(ACT))

    def check(self, view: View, action: str) -> Decision:
        """Decide about an action, and write it down."""
        return self._enforcer.check(self.role, _act(view, action))

    def stop(self, reason: str) -> None:
        """End the episode."""
        said = Decision("stop", "default", reason, getattr(self._guard, "version", ""))
        self._enforcer.stopped = self._enforcer.stopped or said
        self._enforcer.log.add(self.role, ToolCall(ACT), said, 0.0)

    def permitted(self, view: View, options: Sequence[str]) -> list[str]:
        """Return which actions the guard would allow now; nothing is changed or written down."""
        if self._enforcer.stopped is not None:
            return []
        guard = self._guard
        if isinstance(guard, PolicyGuard):
            return [one for one in options if guard.permits(self.role, ACT, _act(view, one).arguments)]
        return [one for one in options if decide_closed(guard, self.role, _act(view, one)).allowed]

    def carry_out(self, name: str, arguments: Mapping[str, Any], run: Callable[..., Any]) -> tuple[Any, str]:
        """Make a call if the guard allows it.

        Returns:
            What it gave, and why it was not made; an empty text if it was.
        """
        outcome = self._enforcer.call(self.role, ToolCall(name, arguments), run)
        said = outcome.decision
        return outcome.value, "" if said.allowed else _refusal(said)

    def notes(self) -> dict[str, Any]:
        """Return the record for the notes of the act; empty if there is nothing to say."""
        made = [{name: value for name, value in row.items() if name not in UNLOGGED} for row in self._enforcer.log.rows]
        found: dict[str, Any] = {"decisions": [*self._before, *made]} if self._before or made else {}
        own = self._guard.updates if isinstance(self._guard, PolicyGuard) else ()
        if updates := [*self._others, *map(list, own)]:
            found["updates"] = updates
        if (stopped := self._enforcer.stopped) is not None:
            found["stopped"] = [stopped.rule, stopped.reason, stopped.version]
        return found | ({"role": self.role, "passed": self.passed} if found else {})


class GuardedPolicy:
    """A policy whose actions are decided about before the world sees them.

    An action that is blocked is shown to the agent with the reason, and it is asked again, `tries` times; a list of
    legal actions is offered without it then. Afterwards the turn is passed: nothing is said where text is free, else a
    random action is taken that is legal and allowed. Where a rule says stop, or where nothing that is legal is allowed,
    the episode ends before the step, as `failed`, and the turn's notes say why. Silence is no action, and is let pass.

    Notes of an act: `guard` holds `role`, `decisions` in order (tool, arguments, effect, rule, reason, version,
    latency), `updates` of the rules so far in this episode, `passed`, and `stopped`. The next turn reads them there, so
    `Rules.recall` must be at least 1 where rules update; calls of an attempt that the world refuses are not on record.

    Args:
        inner: Whose actions they are.
        guards: By role. Roles without a guard act as they would without this class.
        tries: How often an agent is asked again after a blocked action.
        repairs: How often the world lets an agent try again after an illegal action, as in `rolecraft.worlds.Rules`:
            after the last such attempt a random action would be taken that no guard has seen; here it is one that is
            allowed.
        mask: Offer only those legal actions that are allowed; the notes hold them as `permitted`.

    Raises:
        UserError: If `tries` or `repairs` is negative.
    """

    def __init__(
        self, inner: Player, guards: RoleGuards, *, tries: int = 1, repairs: int = 1, mask: bool = False
    ) -> None:
        if tries < 0 or repairs < 0:
            raise UserError(f"tries and repairs must be at least 0, got {tries} and {repairs}.")
        self._inner, self._guards, self._tries, self._repairs, self._mask = inner, guards, tries, repairs, mask

    def act(self, views: Sequence[View]) -> list[Act]:
        """Answer every view."""
        from rolecraft.worlds import Act

        if not self._mask:
            return self.settle(views, self._inner.act(views), self._inner.act)
        offered, acts = list(views), [Act("")] * len(views)
        for place, view in enumerate(views):
            turn = self._guards.begin(view)
            if turn is not None and turn.acts and view.legal:
                offered[place] = replace(view, legal=tuple(turn.permitted(view, view.legal)))
                if not offered[place].legal:
                    turn.stop("nothing that the world lets the agent do is allowed")
                    acts[place] = _noted(_ended(turn, acts[place]), turn)
        asked = [place for place, act in enumerate(acts) if not act.failed]
        answers = self._inner.act([offered[place] for place in asked]) if asked else []
        for place, act in zip(asked, answers, strict=True):
            acts[place] = _joined(Act(""), act, views[place], offered[place])
        return self.settle(views, acts, self._inner.act)

    def settle(
        self,
        views: Sequence[View],
        acts: Sequence[Act],
        ask: Callable[[Sequence[View]], Sequence[Act]],
        asked: Sequence[bool] | None = None,
    ) -> list[Act]:
        """Return what is done in the end.

        Args:
            views: The decisions.
            acts: What the agents want to do.
            ask: Asks agents again.
            asked: Which of them can be asked; left out: all.
        """
        found = list(acts)
        turns = {
            place: turn for place, view in enumerate(views) if (turn := self._guards.begin(view, acts[place].notes))
        }
        shown = {place: views[place] for place in turns}
        for number in range(self._tries + 1):
            again: dict[int, View] = {}
            for place, last in shown.items():
                turn, view = turns[place], views[place]
                said = self._decided(turn, view, found[place])
                if said is None or said.allowed:
                    continue
                next_view = _asking(last, found[place], said, turn, number)
                final = number == self._tries or (asked is not None and not asked[place])
                if final or turn.stopped or next_view.legal == ():
                    found[place] = _instead(turn, view, found[place])
                else:
                    again[place] = next_view
            if not again:
                break
            for place, act in zip(again, ask(list(again.values())), strict=True):
                found[place] = _joined(found[place], act, views[place], again[place])
                turns[place] = self._guards.begin(again[place], act.notes) or turns[place]
            shown = again
        return [_noted(act, turns.get(place)) for place, act in enumerate(found)]

    def _decided(self, turn: TurnGuard, view: View, act: Act) -> Decision | None:
        """Decide about an act; None where there is nothing to decide."""
        if act.failed:
            return None
        if turn.stopped:  # a call of this turn, or an earlier turn, has ended the episode
            return Decision("block", "stopped", turn.stopped)
        if not turn.acts:
            return None
        if view.legal is not None and act.action not in view.legal:
            lost = len(view.refused) >= self._repairs
            return Decision("block", "illegal", "the world does not let it do that") if lost else None
        return turn.check(view, act.action) if act.action.strip() or view.legal else None


def _guard_of(given: Policy | Guard) -> Guard:
    """Return a guard, with the rules for `act` looked over."""
    guard = PolicyGuard(given) if isinstance(given, Policy) else given
    if isinstance(guard, PolicyGuard):
        policy = guard.policy
        for role in (None, *policy.roles):
            for rule in policy.rules(role).get(ACT, ()):
                for name in rule.when:
                    if name not in ACT_ARGUMENTS:
                        near = did_you_mean(name, ACT_ARGUMENTS)
                        raise UserError(
                            f"{policy.name}: {rule.where}: {ACT} has no argument {name!r} (arguments: "
                            f"{', '.join(ACT_ARGUMENTS)}).{near}"
                        )
    return guard


def _act(view: View, action: str) -> Action:
    return ToolCall(ACT, {"action": action} | ({"text": action} if view.legal is None else {}))


def _refusal(said: Decision) -> str:
    return f"blocked by {said.rule}: {said.reason}"


def _asking(view: View, act: Act, said: Decision, turn: TurnGuard, number: int) -> View:
    """Return the view with which an agent is asked again: the reason in it, and the list without what was blocked."""
    from rolecraft.worlds import Receipt

    return replace(
        view,
        legal=None if view.legal is None else tuple(one for one in view.legal if one != act.action),
        seed=derive_seed(view.seed, "guard", number),
        refused=(*view.refused, Receipt(act.action, False, f"{_refusal(said)}.")),
        orders={**(view.orders or {}), NOTE: turn.notes()},
    )


def _instead(turn: TurnGuard, view: View, act: Act) -> Act:
    """Pass the turn, or end the episode."""
    if not turn.stopped:
        turn.passed = True
        if view.legal is None:
            return replace(act, action="")
        options = turn.permitted(view, view.legal) if turn.acts else list(view.legal)
        if options:
            rng = np.random.default_rng(derive_seed(view.seed, "guard", "pass"))
            action = options[int(rng.integers(len(options)))]
            if not turn.acts or turn.check(view, action).allowed:
                return replace(act, action=action)
        turn.stop("nothing that the world lets the agent do is allowed")
    return _ended(turn, act)


def _ended(turn: TurnGuard, act: Act) -> Act:
    return replace(act, action="", failed=f"the guard ended the episode: {turn.stopped}")


def _joined(old: Act, new: Act, view: View, shown: View) -> Act:
    """Return an act with what the blocked one before it took, and what it was offered where that is less."""
    used = {
        name: old.notes[name] + new.notes[name]
        for name in ("tokens", "prompt_tokens")
        if all(isinstance(one.notes.get(name), int) for one in (old, new))
    }
    offered = {PERMITTED: list(shown.legal or ())} if shown.legal != view.legal else {}
    return replace(new, notes={**new.notes, **used, **offered})


def _noted(act: Act, turn: TurnGuard | None) -> Act:
    notes = turn.notes() if turn is not None else {}
    return replace(act, notes={**act.notes, NOTE: notes}) if notes else act
