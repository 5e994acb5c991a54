"""The decision log: every decision with its rule, reason, principal, latency and policy version."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rolecraft.guard._decision import Action, Decision
from rolecraft.guard._values import NotPlain, plain_value

if TYPE_CHECKING:
    from rolecraft._run import RunStore

STAGE = "decisions"


class DecisionLog:
    """Keeps decisions in order, in memory and, where asked, in a JSONL file or a run store as they are made.

    Args:
        path: A JSONL file to append to.
        store: A run store; rows go to its stage `decisions`.
        keep_arguments: Write down the arguments of calls, cut to 200 characters each. Off where they may be secret.
    """

    def __init__(
        self, path: str | Path | None = None, store: RunStore | None = None, *, keep_arguments: bool = True
    ) -> None:
        self.rows: list[dict[str, Any]] = []
        self._path = Path(path) if path is not None else None
        self._store = store
        self._keep = keep_arguments
        self._lock = threading.Lock()

    def add(self, principal: str, action: Action, decision: Decision, seconds: float, note: str = "") -> None:
        """Write a decision down.

        Args:
            principal: Who wanted to act.
            action: What it wanted to do; cut, and made plain JSON.
            decision: What was decided.
            seconds: How long the decision took.
            note: What came of a question, or of the call.
        """
        row: dict[str, Any] = {
            "time": round(time.time(), 6),
            "principal": str(principal),
            "tool": str(action.name)[:200].encode(errors="replace").decode(),
            "effect": decision.effect,
            "rule": decision.rule,
            "reason": decision.reason.encode(errors="replace").decode(),
            "version": decision.version,
            "latency_us": round(1e6 * seconds, 2),
        }
        row |= {"arguments": _shown(action.arguments)} if self._keep else {}
        row |= {"note": note} if note else {}
        with self._lock:
            row["number"] = len(self.rows)
            self.rows.append(row)
            if self._path is not None:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
            if self._store is not None:
                self._store.put(STAGE, f"{row['number']:08}", row)


def _shown(arguments: Any) -> Any:
    if not isinstance(arguments, Mapping):
        return _cut(arguments)
    return {str(name).encode(errors="replace").decode()[:200]: _cut(value) for name, value in arguments.items()}


def _cut(value: Any) -> Any:
    try:
        text = json.dumps(plain_value(value))
    except (NotPlain, RecursionError):
        return f"{value!r:.200}".encode(errors="replace").decode()
    return value if len(text) <= 200 else text[:200] + "..."
