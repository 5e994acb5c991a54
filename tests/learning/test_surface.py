"""The public surface of the package: every name is found, and nothing heavy comes with the package itself."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from rolecraft import learning

PARTS = ("character", "losses", "offline", "prompts", "segments", "selfplay", "skills", "social", "workflows")


def test_every_name_is_found_where_the_table_says():
    assert set(learning._LAZY) == set(learning.__all__)
    assert sorted(learning.__all__) == sorted(set(learning.__all__))
    for name in learning.__all__:
        part = import_module(f"rolecraft.learning.{learning._LAZY[name]}")
        assert name in part.__all__
        assert getattr(learning, name) is getattr(part, name)


@pytest.mark.parametrize("part", PARTS)
def test_parts_hold_what_they_list(part):
    found = import_module(f"rolecraft.learning.{part}")
    assert all(hasattr(found, name) for name in found.__all__)
    if part != "losses":
        assert {name for name, where in learning._LAZY.items() if where == part} == set(found.__all__)


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'optimize'"):
        _ = learning.optimize


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, rolecraft.learning; print([m for m in ('numpy', 'torch', 'pydantic') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
