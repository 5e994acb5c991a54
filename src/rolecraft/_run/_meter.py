"""What a run costs, and the budget that stops it."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass, field

from rolecraft.errors import BudgetExceededError, UserError

_UNITS = {
    "usd": ("usd", 1.0),
    "tok": ("tokens", 1.0),
    "ktok": ("tokens", 1e3),
    "mtok": ("tokens", 1e6),
    "s": ("seconds", 1.0),
    "min": ("seconds", 60.0),
    "h": ("seconds", 3600.0),
}


@dataclass(frozen=True)
class Budget:
    """The most that one call of a command may use; None is no limit. A resumed run starts a new budget."""

    usd: float | None = None
    tokens: float | None = None
    """Prompt and new tokens together."""
    seconds: float | None = None

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Read `2.50usd`, `100ktok`, `10min`, or several of them separated by commas.

        Raises:
            UserError: If a part has no known unit, is not above zero, or limits what another part limits already.
        """
        limits: dict[str, float] = {}
        for part in text.replace(" ", "").lower().split(","):
            match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)([a-z]+)", part)
            if not match or match[2] not in _UNITS or float(match[1]) <= 0:
                raise UserError(
                    f"budget {part!r}: expected a number above 0 and one of {', '.join(_UNITS)}, "
                    "as in 2.50usd, 100ktok or 10min."
                )
            name, scale = _UNITS[match[2]]
            if name in limits:
                raise UserError(f"budget {text!r}: {name} is limited twice.")
            limits[name] = float(match[1]) * scale
        return cls(**limits)

    def __str__(self) -> str:
        usd = [f"{self.usd:.2f} USD"] if self.usd is not None else []
        tokens = [f"{self.tokens:,.0f} tokens"] if self.tokens is not None else []
        minutes = [f"{self.seconds / 60:.3g} min"] if self.seconds is not None else []
        return ", ".join(usd + tokens + minutes) or "no limit"


@dataclass
class Meter:
    """Counts calls, tokens, money and time, and stops the run at its budget. Threads may share one."""

    budget: Budget | None = None
    calls: int = 0
    prompt_tokens: int = 0
    new_tokens: int = 0
    cost: float = 0.0
    """USD."""
    _start: float = field(default_factory=time.monotonic, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def tokens(self) -> int:
        """Prompt and new tokens together."""
        return self.prompt_tokens + self.new_tokens

    @property
    def seconds(self) -> float:
        """Wall seconds since the meter was made."""
        return time.monotonic() - self._start

    def add(self, calls: int = 0, prompt_tokens: int = 0, new_tokens: int = 0, cost: float = 0.0) -> None:
        """Count what was used; store what came of it before calling this.

        Raises:
            BudgetExceededError: If the budget is reached.
        """
        with self._lock:
            self.calls += calls
            self.prompt_tokens += prompt_tokens
            self.new_tokens += new_tokens
            self.cost += cost
        self.check()

    def check(self) -> None:
        """Stop here if the budget is reached.

        Raises:
            BudgetExceededError: If it is.
        """
        if self.budget is None:
            return
        used = {"usd": self.cost, "tokens": self.tokens, "seconds": self.seconds}
        for name, value in used.items():
            limit = getattr(self.budget, name)
            if limit is not None and value >= limit:
                raise BudgetExceededError(
                    f"the budget of {Budget(**{name: limit})} is used up ({Budget(**{name: value})}). "
                    "Everything computed so far is stored; go on with --resume and another --budget."
                )

    def summary(self) -> dict[str, float]:
        """Return the counts as a row."""
        return {
            "calls": self.calls,
            "prompt_tokens": self.prompt_tokens,
            "new_tokens": self.new_tokens,
            "cost": round(self.cost, 6),
            "seconds": round(self.seconds, 3),
        }
