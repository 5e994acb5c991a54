"""The tests of this folder compile their programs quickly."""

from tests._jax.quickly import compile_quickly

__all__ = ["compile_quickly"]
