"""What a conditioned policy is asked for: one condition, or several joined by and, or, not.

An expression is turned into the disjunctive form that samplers read: alternatives, each a list of conditions with a
sign. Within an alternative the conditions are a product of experts (Decision Diffuser, arXiv 2211.15657, section 3.3):
the guidance of each is added, that of a negated one is subtracted. Of several alternatives one is drawn per sample,
which is exactly a mixture with equal weights.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rolecraft.errors import UserError, did_you_mean

Kind = Literal["return", "goal", "skill", "constraint", "text"]
KINDS: tuple[str, ...] = get_args(Kind)
Outside = Literal["error", "warn"]
MOST_ALTERNATIVES = 256


class OutsideRangeWarning(UserWarning):
    """A condition lay outside the data's range and was clipped to it."""


class Clause(NamedTuple):
    """A condition and whether it is asked for (1) or to be avoided (-1)."""

    condition: Condition
    sign: float


class Expression:
    """Base of conditions and of what `&`, `|` and `~` make of them."""

    def __and__(self, other: Expression) -> Expression:
        return All((self, _expression(other, "&")))

    def __or__(self, other: Expression) -> Expression:
        return Either((self, _expression(other, "|")))

    def __invert__(self) -> Expression:
        return Not(self)

    def alternatives(self) -> tuple[tuple[Clause, ...], ...]:
        """Return the disjunctive form: any of the alternatives, each all of its literals.

        Raises:
            UserError: If there are more than `MOST_ALTERNATIVES`.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Condition(Expression):
    """One thing that is asked of a policy; it hashes and compares by value.

    Example:
        ```python
        left, above = (Condition.one_of("constraint", index, 4) for index in (0, 1))
        asked = left & ~above
        ```
    """

    kind: Kind
    value: tuple[float, ...] | None
    """What is asked for, in the data's units; None is the null condition, which asks for nothing (and which stands for
    a dropped condition in training)."""
    name: str = ""
    """For people; the text itself where the kind is `text` and the value is its embedding."""

    def __post_init__(self) -> None:
        """Check the kind and the value, and make the value a tuple of floats."""
        if self.kind not in KINDS:
            raise UserError(
                f"condition kind {self.kind!r} is unknown; expected one of {', '.join(KINDS)}."
                + did_you_mean(str(self.kind), KINDS)
            )
        if self.value is None:
            return
        array = np.atleast_1d(np.asarray(self.value, dtype=float))
        if array.ndim != 1 or not array.size or not np.isfinite(array).all():
            raise UserError(
                f"a {self.kind} condition needs a value of shape (d,) with finite numbers, got {self.value!r}; "
                "give None for the null condition."
            )
        object.__setattr__(self, "value", tuple(array.tolist()))

    @classmethod
    def of(cls, kind: Kind, value: ArrayLike, name: str = "") -> Condition:
        """Return a condition on a number or a vector of shape (d,)."""
        return cls(kind, tuple(np.atleast_1d(np.asarray(value, dtype=float)).tolist()), name)

    @classmethod
    def one_of(cls, kind: Kind, index: int, count: int, name: str = "") -> Condition:
        """Return the one-hot condition on label `index` of `count`.

        Raises:
            UserError: If the index is not one of the labels.
        """
        if not 0 <= index < count:
            raise UserError(f"{kind} label {index} is not one of 0 ... {count - 1}.")
        return cls(kind, tuple(float(place == index) for place in range(count)), name or f"{kind} {index}")

    @classmethod
    def null(cls, kind: Kind) -> Condition:
        """Return the condition that asks for nothing."""
        return cls(kind, None, "null")

    @property
    def array(self) -> NDArray[np.float32]:
        """The value, of shape (d,); of the null condition it is empty."""
        return np.asarray(self.value or (), dtype=np.float32)

    def alternatives(self) -> tuple[tuple[Clause, ...], ...]:
        """Return the one alternative that asks for this condition; of the null condition it is empty."""
        return ((Clause(self, 1.0),),) if self.value is not None else ((),)

    def __str__(self) -> str:
        if self.name:
            return self.name
        return f"{self.kind} " + ("null" if self.value is None else ",".join(f"{each:.3g}" for each in self.value))


@dataclass(frozen=True)
class All(Expression):
    """All parts are asked for."""

    parts: tuple[Expression, ...]

    def alternatives(self) -> tuple[tuple[Clause, ...], ...]:
        """Return every way of taking one alternative of each part."""
        found: tuple[tuple[Clause, ...], ...] = ((),)
        for part in self.parts:
            new = part.alternatives()
            _check_count(len(found) * len(new))
            found = tuple(tuple(dict.fromkeys(a + b)) for a in found for b in new)
        return found

    def __str__(self) -> str:
        return "(" + " & ".join(map(str, self.parts)) + ")"


@dataclass(frozen=True)
class Either(Expression):
    """Any one of the parts is asked for."""

    parts: tuple[Expression, ...]

    def alternatives(self) -> tuple[tuple[Clause, ...], ...]:
        """Return the alternatives of all parts."""
        found = tuple(each for part in self.parts for each in part.alternatives())
        _check_count(len(found))
        return found

    def __str__(self) -> str:
        return "(" + " | ".join(map(str, self.parts)) + ")"


@dataclass(frozen=True)
class Not(Expression):
    """The part is to be avoided."""

    part: Expression

    def alternatives(self) -> tuple[tuple[Clause, ...], ...]:
        """Return the negation by De Morgan's laws.

        Raises:
            UserError: If the part asks for nothing, so that there is nothing to avoid.
        """
        found: tuple[tuple[Clause, ...], ...] = ((),)
        for alternative in self.part.alternatives():
            if not alternative:
                raise UserError("~ of a null condition: there is nothing to avoid; drop it from the expression.")
            _check_count(len(found) * len(alternative))
            turned = [(Clause(each.condition, -each.sign),) for each in alternative]
            found = tuple(tuple(dict.fromkeys(a + b)) for a in found for b in turned)
        return found

    def __str__(self) -> str:
        return f"~{self.part}"


def _expression(value: object, operator: str) -> Expression:
    if not isinstance(value, Expression):
        raise UserError(f"{operator}: expected a Condition or an expression of them, got {value!r}.")
    return value


def _check_count(count: int) -> None:
    if count > MOST_ALTERNATIVES:
        raise UserError(f"the expression has {count} alternatives, more than {MOST_ALTERNATIVES}; simplify it.")


@dataclass(frozen=True)
class ConditionSpace:
    """The conditions that a data set holds: their kind, size and range."""

    kind: Kind
    low: tuple[float, ...]
    """Smallest value seen, per dimension."""
    high: tuple[float, ...]
    """Largest value seen, per dimension."""

    def __post_init__(self) -> None:
        """Check that the bounds make a box."""
        if (
            len(self.low) != len(self.high)
            or not self.low
            or any(a > b for a, b in zip(self.low, self.high, strict=True))
        ):
            raise UserError(f"expected bounds low <= high of one length, got {self.low} and {self.high}.")

    @classmethod
    def of(cls, kind: Kind, values: ArrayLike) -> ConditionSpace:
        """Take kind and range of the conditions in some data, of shape (n,) or (n, d).

        Raises:
            UserError: If there are none, or one is not finite.
        """
        array = np.asarray(values, dtype=float)
        array = array[:, None] if array.ndim == 1 else array
        if array.ndim != 2 or not array.size or not np.isfinite(array).all():
            raise UserError(f"{kind} conditions: expected finite numbers of shape (n,) or (n, d), got {array.shape}.")
        return cls(kind, tuple(array.min(0).tolist()), tuple(array.max(0).tolist()))

    @property
    def size(self) -> int:
        """Dimensions of a condition."""
        return len(self.low)

    def check(self, condition: Condition, outside: Outside = "warn") -> NDArray[np.float32]:
        """Return a condition's value, of shape (size,), within the data's range.

        A value outside the range asks the model to extrapolate, which harms rather than helps.

        Args:
            condition: Not the null condition.
            outside: `warn` clips the value and warns; `error` refuses it.

        Raises:
            UserError: If kind or size is another, or the value lies outside and `outside` is `error`.
        """
        if condition.kind != self.kind or condition.array.shape != (self.size,):
            raise UserError(
                f"expected a {self.kind} condition of shape (d,) = ({self.size},), got a {condition.kind} condition of "
                f"shape {condition.array.shape}."
            )
        value, low, high = condition.array, np.asarray(self.low), np.asarray(self.high)
        slack = 1e-5 * np.maximum(1.0, np.maximum(abs(low), abs(high)))
        wrong = np.flatnonzero((value < low - slack) | (value > high + slack))
        if wrong.size:
            place = int(wrong[0])
            what = (
                f"{self.kind} condition {value[place]:g}" + (f" in dimension {place}" if self.size > 1 else "")
                + f" lies outside the data's range {self.low[place]:g} to {self.high[place]:g}"
            )  # fmt: skip
            if outside == "error":
                raise UserError(f"{what}; ask for a value within it.")
            warnings.warn(f"{what}; it is clipped.", OutsideRangeWarning, stacklevel=3)
        return np.clip(value, low, high).astype(np.float32)


class Guidance(NamedTuple):
    """What a guided sampler is given for B samples: up to C conditions of size d each, with weights."""

    values: NDArray[np.float32]
    """Shape (B, C, d)."""
    weights: NDArray[np.float32]
    """Shape (B, C): guidance strength times sign; 0 for places that hold no condition."""


def guidance(
    expressions: Expression | Sequence[Expression],
    space: ConditionSpace,
    samples: int,
    *,
    strength: float = 1.0,
    seed: int = 0,
    outside: Outside = "warn",
) -> Guidance:
    """Lay expressions out as the arrays that guided samplers read.

    Args:
        expressions: One for all samples, or one per sample.
        space: What the model was trained on.
        samples: B.
        strength: Guidance strength w: 0 is the unconditional model, 1 the conditional one (for one condition).
        seed: Of the choice among alternatives, where an expression has several.
        outside: See `ConditionSpace.check`.

    Raises:
        UserError: If counts differ, the strength is not finite, or a condition does not fit the space.
    """
    each = [expressions] * samples if isinstance(expressions, Expression) else list(expressions)
    if len(each) != samples or samples < 1:
        raise UserError(f"expected one expression, or one per sample ({samples}), got {len(each)}.")
    if not math.isfinite(strength):
        raise UserError(f"strength must be a finite number, got {strength}.")
    forms = {expression: expression.alternatives() for expression in dict.fromkeys(each)}
    rng = np.random.default_rng(seed)
    chosen = [forms[expression][rng.integers(len(forms[expression]))] for expression in each]
    known = {item.condition: space.check(item.condition, outside) for item in dict.fromkeys(sum(chosen, ()))}
    width = max(1, *(len(alternative) for alternative in chosen)) if chosen else 1
    values = np.zeros((samples, width, space.size), dtype=np.float32)
    weights = np.zeros((samples, width), dtype=np.float32)
    for row, alternative in enumerate(chosen):
        for place, item in enumerate(alternative):
            values[row, place] = known[item.condition]
            weights[row, place] = strength * item.sign
    return Guidance(values, weights)
