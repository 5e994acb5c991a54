"""Rolecraft: define a role once, condition a policy on it, and screen it before you rely on it."""

__version__ = "0.1.0"
