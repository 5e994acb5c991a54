"""Signs that training collapses: replies shrink, entropy goes, everything is said again, rewards no longer differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rolecraft.learning.trainer._config import MonitorConfig


class CollapseMonitor:
    """Compares the last iterations with the first.

    Thinking collapse (SPIRAL, arXiv 2506.24119): reply length below a fifth of what it was. Distribution collapse:
    entropy nearly gone, or nearly every reply the same as another. No signal: rewards that never differ.
    """

    def __init__(self, config: MonitorConfig, state: Mapping[str, Any] | None = None) -> None:
        """Begin, or go on from `state`."""
        self.config = config
        self._rows: list[dict[str, float]] = list((state or {}).get("rows", ()))
        self._first: dict[str, float] = dict((state or {}).get("first", {}))
        self._flat = int((state or {}).get("flat", 0))
        self._known: list[str] = list((state or {}).get("known", ()))

    def state(self) -> dict[str, Any]:
        """Return what `__init__` takes."""
        return {"rows": list(self._rows), "first": dict(self._first), "flat": self._flat, "known": list(self._known)}

    def look(self, length: float, entropy: float, repeated: float, spread: float) -> list[str]:
        """Take an iteration's figures, and return what went wrong since the last, in words.

        Args:
            length: Mean tokens of a reply.
            entropy: Mean entropy per trained token, in nats.
            repeated: Share of the replies that equal an earlier one of the iteration.
            spread: Standard deviation of the outcomes.
        """
        self._flat = 0 if spread > 0 else self._flat + 1
        self._rows = [*self._rows, {"length": length, "entropy": entropy, "repeated": repeated}][-self.config.window :]
        if len(self._rows) < self.config.window:
            return []
        now = {name: sum(row[name] for row in self._rows) / len(self._rows) for name in self._rows[0]}
        if not self._first:
            self._first = now
        faults = {} if self.config.action == "off" else self._faults(now, self._first)
        new = [text for name, text in faults.items() if name not in self._known]
        self._known = list(faults)
        return new

    def _faults(self, now: Mapping[str, float], first: Mapping[str, float]) -> dict[str, str]:
        found = {}
        for name, share, what in (
            ("length", self.config.length, "replies are"),
            ("entropy", self.config.entropy, "entropy is"),
        ):
            if first[name] > 0 and now[name] < share * first[name]:
                found[name] = f"{name}: {what} {now[name]:.3g}, at the start {first[name]:.3g}"
        if now["repeated"] > self.config.repeated >= first["repeated"]:
            found["repetition"] = (
                f"repetition: {now['repeated']:.0%} of replies repeat another, at the start {first['repeated']:.0%}"
            )
        if self._flat >= self.config.flat:
            found["signal"] = f"no signal: all rewards were the same for {self._flat} iterations"
        return found
