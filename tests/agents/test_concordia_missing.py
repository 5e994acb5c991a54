"""Without Concordia, its part says how to install it beside our versions; the rest of the package does not mind."""

from __future__ import annotations

import sys

import pytest

from rolecraft import agents
from rolecraft.errors import MissingDependencyError


def test_the_message_holds_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("concordia", "concordia.language_model", "concordia.typing"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "rolecraft.agents._concordia", raising=False)
    with pytest.raises(MissingDependencyError, match=r"pip install --no-deps gdm-concordia==2\.1\.0 && pip install"):
        _ = agents.ConcordiaModel


def test_an_unknown_name_is_still_unknown() -> None:
    with pytest.raises(AttributeError, match="ConcordiaModell"):
        _ = agents.ConcordiaModell
