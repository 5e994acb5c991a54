"""What the tests of reasons share: small theories, and hypothesis strategies for any."""

from __future__ import annotations

from itertools import product

from hypothesis import strategies as st

from rolecraft.guard.reasons import Default, HardRule, ReasonTheory, negated

FACTS, ACTIONS = ("a", "b"), ("x", "y", "z")


def reason(name, premise, conclusion):
    return Default(name, tuple(premise), conclusion)


def make(defaults, above=(), facts=FACTS, actions=ACTIONS, **others):
    """Return a theory; `above` are pairs (lower, higher)."""
    made = tuple(reason(*each) for each in defaults)
    return ReasonTheory(facts, actions, made, dict.fromkeys(above, ""), **others)


LITERALS = [sign + name for name in (*FACTS, *ACTIONS) for sign in ("", "not ")]
DEMANDS = [sign + name for name in ACTIONS for sign in ("", "not ")]


@st.composite
def theories(draw, most=5, rules=True):
    """Draw a theory of up to `most` reasons, with an order that respects their numbers, and hard rules."""
    count = draw(st.integers(0, most))
    defaults = [
        (f"d{n}", draw(st.lists(st.sampled_from(LITERALS), max_size=2)), draw(st.sampled_from(DEMANDS)))
        for n in range(count)
    ]
    above = [(f"d{i}", f"d{j}") for i in range(count) for j in range(i + 1, count) if draw(st.integers(0, 3)) == 0]
    exclusive = (frozenset({"x", "y"}),) if draw(st.booleans()) else ()
    hard = (HardRule(("x",), "z"),) if rules and draw(st.booleans()) else ()
    return make(defaults, above, exclusive=exclusive, rules=hard)


situations = st.sets(st.sampled_from(["a", "b"])) | st.just({"a", "not b"})


def models(theory, units):
    """Return every assignment that satisfies the hard rules and some literals: the slow way to entailment."""
    names = [*theory.facts, *theory.actions]
    for values in product((True, False), repeat=len(names)):
        world = {name if true else negated(name) for name, true in zip(names, values, strict=True)}
        if not set(units) <= world:
            continue
        if any(len(group & world) > 1 for group in theory.exclusive):
            continue
        if all(rule.conclusion in world for rule in theory.rules if set(rule.premise) <= world):
            yield world


def entails(theory, units, said):
    return all(said in world for world in models(theory, units))


def reference_scenarios(theory, facts):
    """Return the proper scenarios by trying every set of reasons against the definitions."""
    by_name = {each.name: each for each in theory.defaults}
    order = set(theory.priorities)
    while more := {(a, d) for a, b in order for c, d in order if b == c} - order:
        order |= more

    def triggered(chosen):
        units = {*facts, *(by_name[name].conclusion for name in chosen)}
        return {n for n, d in by_name.items() if all(entails(theory, units, p) for p in d.premise)}

    def binding(chosen):
        units = {*facts, *(by_name[name].conclusion for name in chosen)}
        found = triggered(chosen)
        conflicted = {n for n, d in by_name.items() if entails(theory, units, negated(d.conclusion))}
        defeated = {
            low
            for low, d in by_name.items()
            for high in found
            if (low, high) in order and entails(theory, {*facts, by_name[high].conclusion}, negated(d.conclusion))
        }
        return found - conflicted - defeated

    found = []
    for chosen in product((True, False), repeat=len(by_name)):
        names = {name for name, kept in zip(by_name, chosen, strict=True) if kept}
        reached = set()
        while (grown := names & triggered(reached)) != reached:
            reached = grown
        if names == reached == binding(names):
            found.append(names)
    return found
