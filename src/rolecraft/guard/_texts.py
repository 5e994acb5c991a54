"""What is said of one text by patterns, constants and lengths, and whether any text meets it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from rolecraft.guard._regex import Untranslatable, regex_of, text_of, text_value
from rolecraft.guard._schema import compiled_once
from rolecraft.guard._z3 import load_z3

MILLISECONDS = 1000


class Atom(NamedTuple):
    """A statement about a text: it matches a pattern, is a constant, or has at least so many characters."""

    kind: str
    """`pattern`, `constant` or `least`."""
    operand: Any

    def holds(self, text: str) -> bool:
        """Return whether it is true of a text, patterns by the engine that guards use."""
        if self.kind == "constant":
            return bool(text == self.operand)
        if self.kind == "least":
            return bool(len(text) >= self.operand)
        return compiled_once({"pattern": self.operand})(text)


@dataclass
class TextAtoms:
    """The statements about one text, each with the truth value that stands for it in the solver."""

    name: str
    atoms: dict[Atom, Any] = field(default_factory=dict)

    def atom(self, kind: str, operand: Any) -> Any:
        """Return the truth value of a statement."""
        z3 = load_z3()

        return self.atoms.setdefault(Atom(kind, operand), z3.Bool(f"{self.name}:{kind}{len(self.atoms)}"))

    def facts(self) -> Iterator[Any]:
        """Yield what follows from constants: a text is one at most, and then all else about it is known."""
        z3 = load_z3()

        constants = [(atom, flag) for atom, flag in self.atoms.items() if atom.kind == "constant"]
        if len(constants) > 1:
            yield z3.AtMost(*(flag for _, flag in constants), 1)
        for constant, flag in constants:
            for other, said in self.atoms.items():
                if other.kind != "constant":
                    yield z3.Implies(flag, said if other.holds(constant.operand) else z3.Not(said))

    def text(self, truths: Mapping[Atom, bool]) -> tuple[str | None, list[Atom] | None]:
        """Find a text of which exactly the true statements hold.

        Returns:
            A text (None if none was found in time), and where there is none, the statements that contradict each
            other; None where there may be one.
        """
        constant = next((atom.operand for atom, true in truths.items() if true and atom.kind == "constant"), None)
        if constant is not None:
            return constant, None
        said = frozenset((atom, true) for atom, true in truths.items() if atom.kind != "constant")
        verdict, found = _search(said, frozenset())
        if verdict == "unsat":
            return None, [atom for atom, _ in _core(said)]
        constants = frozenset(atom.operand for atom in truths if atom.kind == "constant")
        if constants and found in constants:
            verdict, found = _search(said, constants)
            if verdict == "unsat":
                return None, list(truths)
        return found, None


def _core(said: frozenset[tuple[Atom, bool]]) -> frozenset[tuple[Atom, bool]]:
    """Drop what a contradiction does not need."""
    for one in sorted(said, key=str) if len(said) <= 12 else ():
        if len(said) > 1 and _search(said - {one}, frozenset())[0] == "unsat":
            said = said - {one}
    return said


@lru_cache(maxsize=20_000)
def _search(said: frozenset[tuple[Atom, bool]], constants: frozenset[str]) -> tuple[str, str | None]:
    """Ask z3 for a text; everything goes into one language, for conjunctions of memberships are slow."""
    z3 = load_z3()

    anything = z3.Full(z3.ReSort(z3.StringSort()))
    languages = []
    least, most = 0, None
    for atom, true in said:
        if atom.kind == "least":
            least = max(least, atom.operand) if true else least
            most = most if true else min(atom.operand - 1, most if most is not None else atom.operand)
            continue
        try:
            language = regex_of(atom.operand)
        except Untranslatable:
            continue
        languages.append(language if true else z3.Complement(language))
    if most is not None and most < least:
        return "unsat", None
    try:
        kept = [z3.Re(text_value(text)) for text in constants]
    except Untranslatable:
        kept = []
    if kept:
        languages.append(z3.Complement(kept[0] if len(kept) == 1 else z3.Union(*kept)))
    text = z3.String("text")
    solver = z3.Solver()
    solver.set("timeout", MILLISECONDS)
    whole = languages[0] if len(languages) == 1 else z3.Intersect(*languages) if languages else anything
    solver.add(z3.InRe(text, whole))
    if least:
        solver.add(z3.Length(text) >= least)
    if most is not None:
        solver.add(z3.Length(text) <= most)
    try:
        verdict = str(solver.check())
        return verdict, text_of(solver.model()[text]) if verdict == "sat" and solver.model()[text] is not None else None
    except z3.Z3Exception:
        return "unknown", None
