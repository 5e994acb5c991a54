from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecraft._run import content_key, derive_seed, plain

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@dataclass(frozen=True)
class Point:
    x: float
    name: str


@given(st.dictionaries(st.text(min_size=1).filter(str.isidentifier), VALUES, min_size=2))
def test_a_key_depends_on_the_parts_and_not_on_their_order(parts):
    key = content_key(**parts)
    assert key == content_key(**dict(reversed(parts.items())))
    assert len(key) == 20
    assert set(key) <= set("0123456789abcdef")
    name = next(iter(parts))
    assert key != content_key(**(parts | {name: [parts[name], "changed"]}))


def test_values_of_one_meaning_have_one_key():
    assert content_key(a=1.0, b=(1, 2)) == content_key(b=[1, 2.0], a=1)
    assert content_key(a=np.float64(0.5)) == content_key(a=0.5)
    assert content_key(a=np.array([1.0, 2.5])) == content_key(a=[1, 2.5])
    assert content_key(a=Point(1.0, "p")) == content_key(a={"name": "p", "x": 1})
    assert content_key(a={"z", "y"}) == content_key(a=["y", "z"])
    assert content_key(a=Path("runs/x")) == content_key(a="runs/x")


def test_values_of_different_meaning_have_different_keys():
    keys = {content_key(a=value) for value in (1, "1", True, None, [1], {"1": 1}, 1.5, "")}
    assert len(keys) == 8


def test_a_key_is_the_same_in_every_version():
    assert content_key(role="pirate", strength=1.5) == "2da2200eb06c861ec8ea"


def test_what_json_does_not_hold_is_refused():
    with pytest.raises(TypeError, match="object has no JSON form"):
        plain(object())
    with pytest.raises(ValueError, match="Out of range float"):
        content_key(a=float("nan"))


@given(st.lists(VALUES, max_size=4))
def test_seeds_are_in_range_and_follow_from_the_parts(parts):
    seed = derive_seed(*parts)
    assert seed == derive_seed(*parts)
    assert 0 <= seed < 2**63
    assert seed != derive_seed(*parts, 0)


def test_seeds_are_spread_evenly():
    counts = np.bincount([derive_seed("role", number) % 16 for number in range(3200)], minlength=16)
    assert ((counts - 200) ** 2 / 200).sum() < 37.7  # chi-square, 15 degrees of freedom, p = 0.001
