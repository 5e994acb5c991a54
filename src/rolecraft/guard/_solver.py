"""Sets of calls as formulas: what a restriction, a rule and an ordered list of rules let through, for z3.

A call's argument is a record of solver variables: whether it is there, its type, and a value of every type. Parts
that have no exact counterpart become free truth values, one per restriction and value. So a proof that no call exists
holds in any case, while a call that is found may not be one, and must be tried on the real guard.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from rolecraft.guard._policy import Rule
from rolecraft.guard._regex import Untranslatable
from rolecraft.guard._texts import TextAtoms
from rolecraft.guard._tool_schemas import ToolSchema
from rolecraft.guard._z3 import load_z3

KINDS = ("null", "boolean", "number", "string", "array", "object")
MILLISECONDS = 3000
MOST_ROUNDS = 300
MOST_LENGTH = 40


@dataclass
class _Value:
    """Solver variables of one JSON value."""

    name: str
    kind: Any
    flag: Any
    number: Any
    text: TextAtoms
    length: Any
    elements: list[tuple[Any, _Value]] = field(default_factory=list)
    """Witnesses among its elements: whether one is used, and the element."""
    demands: list[tuple[Any, Mapping[str, Any]]] = field(default_factory=list)
    """What all elements must meet, and whether it is asked."""
    fields: dict[str, tuple[Any, _Value]] = field(default_factory=dict)
    """Properties: whether each is there, and its value."""


class Formulas:
    """Builds formulas over the arguments of one tool.

    Args:
        schema: The tool's schema, where it is known; it narrows what calls there are.
    """

    def __init__(self, schema: ToolSchema | None = None) -> None:
        z3 = load_z3()

        self.z3 = z3
        self.facts: list[Any] = []
        self.arguments: dict[str, tuple[Any, _Value]] = {}
        self._opaque: dict[tuple[str, str], Any] = {}
        self._values: list[_Value] = []
        self._fresh = 0
        self._schema = schema
        if schema is not None:
            required = set(schema.schema.get("required", ()))
            for name, part in schema.arguments.items():
                present, value = self._argument(name)
                if name in required:
                    self.facts.append(present)
                self.facts.append(z3.Implies(present, self._fits(part, value, True)))

    def permits(self, rules: Sequence[Rule], positive: bool) -> Any:
        """Return that the rules let the call through (or that they do not); they stand in the order they are tried."""
        z3 = self.z3
        holds: Any = z3.BoolVal(False) if positive else z3.BoolVal(True)
        for rule in reversed(rules):
            allows = rule.effect == "allow"
            # permitted = match and allows, or no match and permitted by the rest; written without negations
            match, miss = self.matches(rule, True), self.matches(rule, False)
            if positive:
                holds = z3.Or(match, holds) if allows else z3.And(miss, holds)
            else:
                holds = z3.And(miss, holds) if allows else z3.Or(match, holds)
        return holds

    def matches(self, rule: Rule, positive: bool) -> Any:
        """Return that a rule matches the call (or that it does not)."""
        schema = rule.schema
        parts = []
        for name, part in (schema or {"properties": {}})["properties"].items():
            present, value = self._argument(name)
            fits = self._fits(part, value, positive)
            parts.append(self.z3.Implies(present, fits) if positive else self.z3.And(present, fits))
        return self._join(parts, positive)

    def all_present(self, names: Iterable[str]) -> Any:
        """Return that the call has these arguments, which it may otherwise leave out."""
        return self.z3.And(*(self._argument(name)[0] for name in names))

    def solve(self, *formulas: Any, milliseconds: int = MILLISECONDS) -> tuple[str, dict[str, Any] | None]:
        """Return `unsat`, `sat` with a call's arguments, or `unknown`."""
        z3 = self.z3
        solver = z3.Solver()
        solver.set("timeout", milliseconds)
        elements = self._element_facts()  # before the facts are read, for it adds to them
        solver.add(*formulas, *self.facts, *elements)
        texts = [value.text for value in self._values]
        solver.add(*(fact for text in texts for fact in text.facts()))
        for _ in range(MOST_ROUNDS):
            try:
                said = str(solver.check())
            except z3.Z3Exception:
                return "unknown", None
            if said != "sat":
                return said, None
            model = solver.model()
            words, clauses = self._words(model)
            if not clauses:
                arguments = self.arguments.items()
                there = {name: value for name, (present, value) in arguments if self._true(model, present)}
                return "sat", {name: self._read(model, value, words) for name, value in there.items()}
            solver.add(*clauses)
        return "unknown", None

    def _words(self, model: Any) -> tuple[dict[str, str], list[Any]]:
        """Find the texts of a model, or what it says of texts that none can meet, as clauses against it."""
        z3 = self.z3
        words, clauses = {}, []
        for value in self._values:
            if not value.text.atoms or not self._true(model, self._is(value, "string")):
                continue
            truths = {atom: self._true(model, flag) for atom, flag in value.text.atoms.items()}
            word, core = value.text.text(truths)
            if core is not None:
                flags = [(value.text.atoms[atom], truths[atom]) for atom in core]
                clauses.append(z3.Implies(self._is(value, "string"), z3.Or(*(flag != true for flag, true in flags))))
            elif word is not None:
                words[value.name] = word
        return words, clauses

    def _true(self, model: Any, formula: Any) -> bool:
        return bool(self.z3.is_true(model.eval(formula, model_completion=True)))

    # Values

    def _argument(self, name: str) -> tuple[Any, _Value]:
        if name not in self.arguments:
            present = self.z3.Bool(f"{name}?")
            self.arguments[name] = (present, self._value(name))
            if self._schema is not None and name not in self._schema.arguments:
                self.facts.append(self.z3.Not(present))
        return self.arguments[name]

    def _value(self, name: str) -> _Value:
        z3 = self.z3
        made = _Value(
            name, z3.Int(f"{name}:kind"), z3.Bool(f"{name}:flag"), z3.Real(f"{name}:number"),
            TextAtoms(name), z3.Int(f"{name}:length"),
        )  # fmt: skip
        self._values.append(made)
        self.facts += [made.kind >= 0, made.kind < len(KINDS), made.length >= 0]
        return made

    def _is(self, value: _Value, kind: str) -> Any:
        return value.kind == KINDS.index(kind)

    # Restrictions

    def _join(self, parts: Sequence[Any], positive: bool) -> Any:
        """Join what must all hold; negated, of which one must hold."""
        if len(parts) == 1:
            return parts[0]
        return self.z3.And(*parts) if positive else self.z3.Or(*parts)

    def _fits(self, schema: Mapping[str, Any], value: _Value, positive: bool) -> Any:
        """Return that a value meets a restriction, or that it does not; negations only ever stand before atoms."""
        parts = []
        for key, operand in schema.items():
            if key in ("then", "else", "description", "title", "default"):
                continue
            if key == "if":
                parts.append(self._conditional(schema, value, positive))
            elif key in ("allOf", "anyOf"):
                inner = [self._fits(part, value, positive) for part in operand]
                parts.append(self._join(inner, positive == (key == "allOf")))
            elif key == "oneOf":
                parts.append(self._exactly_one(operand, value, positive))
            elif key == "not":
                parts.append(self._fits(operand, value, not positive))
            elif key == "items" and isinstance(operand, Mapping):
                parts.append(self._items(operand, value, positive))
            elif key == "properties":
                parts += [self._property(name, part, value, positive) for name, part in operand.items()]
            else:
                atom = self._atom(key, operand, value)
                parts.append(atom if positive else self.z3.Not(atom))
        return self._join(parts, positive) if parts else self.z3.BoolVal(positive)

    def _conditional(self, schema: Mapping[str, Any], value: _Value, positive: bool) -> Any:
        z3 = self.z3
        yes, no = schema.get("then", {}), schema.get("else", {})
        holds, fails = self._fits(schema["if"], value, True), self._fits(schema["if"], value, False)
        branches = [(holds, self._fits(yes, value, positive)), (fails, self._fits(no, value, positive))]
        return z3.Or(*(z3.And(when, then) for when, then in branches))

    def _exactly_one(self, parts: Sequence[Mapping[str, Any]], value: _Value, positive: bool) -> Any:
        z3 = self.z3
        yes = [self._fits(part, value, True) for part in parts]
        no = [self._fits(part, value, False) for part in parts]
        each = range(len(parts))
        if positive:
            return z3.Or(*(z3.And(yes[one], *(no[other] for other in each if other != one)) for one in each))
        pairs = [z3.And(yes[a], yes[b]) for a in each for b in each if a < b]
        return z3.Or(z3.And(*no), *pairs)

    def _items(self, schema: Mapping[str, Any], value: _Value, positive: bool) -> Any:
        """All elements fit: asked of every witness. Not all fit: a new witness that does not."""
        z3 = self.z3
        self._fresh += 1
        asked = z3.Bool(f"{value.name}:all{self._fresh}")
        array = self._is(value, "array")
        if positive:
            value.demands.append((asked, schema))
            return z3.Or(z3.Not(array), asked)
        element = self._value(f"{value.name}[{self._fresh}]")
        value.elements.append((asked, element))
        self.facts.append(z3.Implies(asked, z3.And(value.length >= 1, self._fits(schema, element, False))))
        return z3.And(array, asked)

    def _property(self, name: str, schema: Mapping[str, Any], value: _Value, positive: bool) -> Any:
        z3 = self.z3
        there, inner = self._field(name, value)
        applies = z3.And(self._is(value, "object"), there)
        fits = self._fits(schema, inner, positive)
        return z3.Implies(applies, fits) if positive else z3.And(applies, fits)

    def _field(self, name: str, value: _Value) -> tuple[Any, _Value]:
        if name not in value.fields:
            value.fields[name] = (self.z3.Bool(f"{value.name}.{name}?"), self._value(f"{value.name}.{name}"))
        return value.fields[name]

    def _atom(self, key: str, operand: Any, value: _Value) -> Any:
        z3 = self.z3
        try:
            if key == "type":
                return z3.Or(
                    *(self._of_type(value, name) for name in ([operand] if isinstance(operand, str) else operand))
                )
            if key in ("enum", "const"):
                options = operand if key == "enum" else [operand]
                return z3.Or(*(self._equals(value, option) for option in options)) if options else z3.BoolVal(False)
            if key == "required":
                there = [self._field(name, value)[0] for name in operand]
                return z3.Implies(self._is(value, "object"), z3.And(*there))
            if key == "pattern":
                return z3.Implies(self._is(value, "string"), value.text.atom("pattern", operand))
            sized: dict[str, tuple[str, Callable[[], Any]]] = {
                "minLength": ("string", lambda: value.text.atom("least", operand)),
                "maxLength": ("string", lambda: z3.Not(value.text.atom("least", operand + 1))),
                "minItems": ("array", lambda: value.length >= operand),
                "maxItems": ("array", lambda: value.length <= operand),
            }
            if key in sized and isinstance(operand, int):
                kind, holds = sized[key]
                return z3.Implies(self._is(value, kind), holds())
            number: Callable[[Any, Any], Any] | None = {
                "minimum": lambda x, y: x >= y, "maximum": lambda x, y: x <= y,
                "exclusiveMinimum": lambda x, y: x > y, "exclusiveMaximum": lambda x, y: x < y,
                "multipleOf": lambda x, y: z3.IsInt(x / y),
            }.get(key)  # fmt: skip
            if number is not None and (key != "multipleOf" or isinstance(operand, int)):
                return z3.Implies(self._is(value, "number"), number(value.number, _real(operand)))
        except Untranslatable:
            pass
        name = (value.name, json.dumps([key, operand], sort_keys=True))
        return self._opaque.setdefault(name, z3.Bool(f"?{len(self._opaque)}"))

    def _of_type(self, value: _Value, name: str) -> Any:
        if name == "integer":
            return self.z3.And(self._is(value, "number"), self.z3.IsInt(value.number))
        return self._is(value, name)

    def _equals(self, value: _Value, option: Any) -> Any:
        z3 = self.z3
        if option is None:
            return self._is(value, "null")
        if isinstance(option, bool):
            return z3.And(self._is(value, "boolean"), value.flag == option)
        if isinstance(option, int | float):
            return z3.And(self._is(value, "number"), value.number == _real(option))
        if isinstance(option, str):
            return z3.And(self._is(value, "string"), value.text.atom("constant", option))
        raise Untranslatable("a list or mapping as a value")

    def _element_facts(self) -> list[Any]:
        """Ask every demand of every witness, until nothing new comes up."""
        z3 = self.z3
        found, done = [], set()
        todo = [value for _, value in self.arguments.values()]
        while todo:
            value = todo.pop()
            for used, element in list(value.elements):
                for asked, schema in list(value.demands):
                    if (element.name, str(asked)) not in done:
                        done.add((element.name, str(asked)))
                        found.append(z3.Implies(z3.And(used, asked), self._fits(schema, element, True)))
            todo += [element for _, element in value.elements] + [inner for _, inner in value.fields.values()]
        return found

    # Models

    def _read(self, model: Any, value: _Value, words: Mapping[str, str]) -> Any:
        kind = KINDS[model.eval(value.kind, model_completion=True).as_long()]
        if kind == "null":
            return None
        if kind == "boolean":
            return self._true(model, value.flag)
        if kind == "number":
            return _number(model.eval(value.number, model_completion=True))
        if kind == "string":
            return words.get(value.name, "text")
        if kind == "object":
            there = {name: part for name, (held, part) in value.fields.items() if self._true(model, held)}
            return {name: self._read(model, part, words) for name, part in there.items()}
        used = [self._read(model, part, words) for held, part in value.elements if self._true(model, held)]
        missing = min(model.eval(value.length, model_completion=True).as_long(), MOST_LENGTH) - len(used)
        if missing <= 0:
            return used
        return used + (used[:1] * missing if used else self._filler(model, value, missing))

    def _filler(self, model: Any, value: _Value, missing: int) -> list[Any]:
        """Return elements for a list of which only the length was spoken: any that meet what is asked of all."""
        asked = [schema for held, schema in value.demands if self._true(model, held)]
        other = Formulas()
        element = other._value("element")
        other.arguments["element"] = (self.z3.BoolVal(True), element)
        said, found = other.solve(*(other._fits(schema, element, True) for schema in asked), milliseconds=500)
        return [found["element"] if said == "sat" and found else None] * missing


def _real(value: float) -> Any:
    z3 = load_z3()

    if abs(value) > 2**53:  # beyond it the validator may round
        raise Untranslatable("a large number")
    exact = Fraction(str(value)) if isinstance(value, float) else Fraction(value)
    return z3.Q(exact.numerator, exact.denominator)


def _number(value: Any) -> int | float:
    if not hasattr(value, "as_fraction"):
        value = value.approx(20)
    exact = value.as_fraction()
    return int(exact) if exact.denominator == 1 else float(exact)
