"""Tests of JAX compile many tiny programs and run each once: compile them quickly rather than well.

A `conftest.py` of a folder of such tests imports the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

_SETTING = "jax_disable_most_optimizations"


@pytest.fixture(scope="package", autouse=True)
def compile_quickly() -> Iterator[None]:
    """Turn most of the compiler's optimisations off for the tests of a folder."""
    jax = pytest.importorskip("jax")
    before = jax.config.values[_SETTING]
    jax.config.update(_SETTING, True)
    yield
    jax.config.update(_SETTING, before)
