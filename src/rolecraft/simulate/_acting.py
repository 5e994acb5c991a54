"""How a simulation's agents act: their roles, under orders from outside, watched for drift, and when a model fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rolecraft._run import derive_seed
from rolecraft.agents import Part, RolePolicy
from rolecraft.agents._failures import Failure, ask_rows
from rolecraft.conditioning import Direction, conditioned
from rolecraft.models import Chat
from rolecraft.simulate._drift import DriftWatch, Said
from rolecraft.worlds import Act, View

if TYPE_CHECKING:
    from rolecraft.conditioning import Intervention
    from rolecraft.guard import GuardedPolicy
    from rolecraft.screening import Admission

ASKED_AT_ONCE = 8
"""Most views that are asked side by side once a batch of them has failed."""


@dataclass(frozen=True)
class Plan:
    """What becomes of one decision before the model is asked."""

    view: View
    """As the model sees it: with what is told, and under the role of now."""
    answer: str | None = None
    """What is done without asking the model."""
    notes: Mapping[str, Any] | None = None


class CappedPart(Part):
    """A role whose residual stream is held while its prompt stays."""

    def chat(self, observation: str) -> Chat:
        """Return what the model is shown."""
        if self.admission is not None and self.admission.conditioner == "prompt":
            return conditioned(self.admission.role, observation, self.admission.rung)
        return super().chat(observation)


class DirectedPolicy:
    """Asks a `RolePolicy`, with the orders of a `StudyDirector` and of the drift watch carried out.

    All that was done is on record in the notes of the act: `interventions`, `drift`, `held`
    (what the watch ordered), `failures`, the tries to which the model gave no reply, and `guard`, what was decided
    about actions. Whatever an agent does passes its guard, an order to `do` something included.
    """

    def __init__(
        self,
        inner: RolePolicy,
        cast: Mapping[str, Admission],
        watch: DriftWatch | None = None,
        retries: int = 1,
        guard: GuardedPolicy | None = None,
    ) -> None:
        """Bind a policy whose `adjust` is `adjust_part`.

        Args:
            inner: Plays the roles.
            cast: The roles it plays, by id.
            watch: Reads every message; None reads none.
            retries: How often a reply that did not come is asked for again, with another seed.
            guard: Decides about actions; None: nothing does.
        """
        self._inner, self._cast, self._watch, self._retries, self._guard = inner, cast, watch, retries, guard

    def act(self, views: Sequence[View]) -> list[Act]:
        """Answer every view; one that the server does not answer gets an act that has `failed`."""
        plans = [self._plan(view) for view in views]
        asked = [place for place, plan in enumerate(plans) if plan.answer is None]
        acts = [Act(plan.answer or "") for plan in plans]
        for place, act in zip(asked, self._ask([plans[place].view for place in asked]), strict=True):
            acts[place] = act
        if self._guard is not None:
            may_ask = [plan.answer is None for plan in plans]
            acts = self._guard.settle([plan.view for plan in plans], acts, self._ask, may_ask)
        noted = [replace(act, notes={**act.notes, **(plan.notes or {})}) for act, plan in zip(acts, plans, strict=True)]
        return self._watched(plans, noted)

    def _plan(self, view: View) -> Plan:
        orders = view.orders or {}
        plan = Plan(replace(view, orders=None), None, {"interventions": dict(orders)} if orders else {})
        steering: dict[str, Any] = {}
        for order in orders.get("applied", ()):
            plan = _obey(plan, order, steering)
        plan = self._hold_to_role(plan, steering)
        return replace(plan, view=replace(plan.view, orders=steering or None))

    def _hold_to_role(self, plan: Plan, steering: dict[str, Any]) -> Plan:
        """Carry out what the watch decided after the agent's last turn."""
        view, watch = plan.view, self._watch
        drift = _drift_of(view)
        if watch is None or view.role is None or drift is None or drift["role"] != view.role:
            return plan
        state, part, action = drift["state"] or {}, self._cast[view.role], watch.rule.action
        retired = action == "retire" and state.get("alarms", 0) > 0
        if action == "none" or not (retired or state.get("drifted")):
            return plan
        direction = watch.directions.get(view.role)
        if action == "re-steer" and part.conditioner == "steering":
            steering["factor"] = steering.get("factor", 1.0) * watch.rule.factor
        elif action == "cap" and direction is not None and drift["watched"] == "projection":
            steering["floor"] = (direction, state["limit"])
        elif action != "retire":
            action = "re-prompt"
            plan = replace(plan, view=replace(view, observation=f"{view.observation}\n\n{_reminder(part)}"))
        notes = {**(plan.notes or {}), "held": action}
        return replace(plan, answer=_no_decision(view) if retired else plan.answer, notes=notes)

    def _ask(self, views: Sequence[View]) -> list[Act]:
        acts = self._ask_surely(views)
        for number in range(self._retries):
            silent = [place for place, act in enumerate(acts) if _gave_nothing(act)]
            if not silent:
                break
            again = [replace(views[place], seed=derive_seed(views[place].seed, "retry", number)) for place in silent]
            for place, act in zip(silent, self._ask_surely(again), strict=True):
                acts[place] = _with_failures(act, _failures(acts[place]))
        return [_with_failures(act, _failures(act)) if _gave_nothing(act) else act for act in acts]

    def _ask_surely(self, views: Sequence[View]) -> list[Act]:
        """Ask for every view, whatever becomes of the others: each belongs to an episode of its own."""

        def ask(rows: Sequence[int]) -> list[Act]:
            return self._inner.act([views[row] for row in rows])

        answers = ask_rows(ask, len(views), "waste", give_up=None, threads=ASKED_AT_ONCE)
        return [Act("", failed=one.reason) if isinstance(one, Failure) else one for one in answers]

    def _watched(self, plans: Sequence[Plan], acts: Sequence[Act]) -> list[Act]:
        if self._watch is None:
            return list(acts)
        states = [_drift_of(plan.view) for plan in plans]
        spoken = [
            place
            for place, (plan, act) in enumerate(zip(plans, acts, strict=True))
            if plan.view.legal is None and plan.view.role and plan.answer is None and act.action.strip()
        ]
        messages = [
            Said(plans[place].view.role or "", plans[place].view.observation, acts[place].action, states[place])
            for place in spoken
        ]
        read = dict(zip(spoken, self._watch.read(messages), strict=True))
        found = []
        for place, act in enumerate(acts):
            state = read.get(place) or _unread(states[place])
            found.append(replace(act, notes={**act.notes, "drift": state}) if state else act)
        return found


def adjust_part(view: View, part: Part, caps: Mapping[str, tuple[Intervention, ...]] | None = None) -> Part:
    """Return how a role is put on for one decision: the orders on its steering carried out, then the guard's caps."""
    part = _ordered(view, part)
    held = (caps or {}).get(view.role or "")
    return CappedPart(part.admission, (*part.interventions, *held)) if held else part


def _ordered(view: View, part: Part) -> Part:
    orders = view.orders or {}
    interventions = part.interventions
    if "factor" in orders:
        factor = orders["factor"]
        interventions = tuple(replace(one, strength=one.strength * factor) for one in interventions)
    if "floor" not in orders:
        return replace(part, interventions=interventions)
    direction, limit = orders["floor"]
    return CappedPart(part.admission, (*interventions, floor_intervention(direction, limit)))


def floor_intervention(direction: Direction, limit: float) -> Any:
    """Return the intervention that raises the projection on a direction to `limit` where it is below."""
    return (-direction).steer(1.0, operator="cap", threshold=-limit)


def _obey(plan: Plan, order: Mapping[str, Any], steering: dict[str, Any]) -> Plan:
    view, what = plan.view, order["what"]
    if what == "tell":
        return replace(plan, view=replace(view, observation=f"{view.observation}\n\n{order['text']}"))
    if what == "role":
        return replace(plan, view=replace(view, role=order["role"]))
    if what == "strength":
        steering["factor"] = steering.get("factor", 1.0) * order["factor"]
        return plan
    return replace(plan, answer=order["action"] if what == "do" else _no_decision(view))


def _no_decision(view: View) -> str:
    """Silence where text is free, else a random legal action that follows from the seed of the decision."""
    return view.legal[int(view.rng().integers(len(view.legal)))] if view.legal else ""


def _drift_of(view: View) -> Mapping[str, Any] | None:
    return view.history[-1].notes.get("drift") if view.history else None


def _unread(state: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Carry the state over a turn in which nothing was said."""
    return None if state is None else {**state, "projection": None, "control": None, "score": None}


def _reminder(part: Admission) -> str:
    return str(conditioned(part.role, "", part.rung)[0]["content"])


def _gave_nothing(act: Act) -> bool:
    return act.notes.get("end") == "error"


def _with_failures(act: Act, reasons: Sequence[str]) -> Act:
    return replace(act, notes={**act.notes, "failures": list(reasons)})


def _failures(act: Act) -> list[str]:
    return [*act.notes.get("failures", ()), str(act.notes.get("note") or "no reply")]
