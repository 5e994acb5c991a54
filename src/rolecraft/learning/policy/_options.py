"""Legal actions as tokens: which tokens may come next, so that the smallest model plays legally and knows its odds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from rolecraft.errors import UserError

Reply = tuple[int, ...]


class Options:
    """Some actions as paths through tokens.

    Where one action is the beginning of another, its path ends with the token `end`; else a path ends with the action.
    """

    def __init__(self, actions: Mapping[str, Sequence[int]], end: int) -> None:
        """Lay out the paths.

        Args:
            actions: Tokens by action.
            end: The token that ends a reply.

        Raises:
            UserError: If there is none, one has no tokens, or two are the same tokens.
        """
        plain = {tuple(tokens): action for action, tokens in actions.items()}
        if not actions or () in plain or len(plain) < len(actions):
            raise UserError(
                f"actions {', '.join(map(repr, list(actions)[:8]))}: each needs tokens of its own; are all their words "
                "in the vocabulary?"
            )
        inner = {path[:cut] for path in plain for cut in range(len(path))}
        self.actions: dict[Reply, str] = {
            (*path, end) if path in inner else path: action for path, action in plain.items()
        }
        """Action by path."""
        following: dict[Reply, list[int]] = {}
        for path in self.actions:
            for cut, token in enumerate(path):
                found = following.setdefault(path[:cut], [])
                if token not in found:
                    found.append(token)
        self._next = {head: tuple(sorted(found)) for head, found in following.items()}
        self.longest = max(map(len, self.actions))
        """Tokens of the longest path."""
        self.single = all(len(path) == 1 for path in self.actions)
        """Whether every action is one token."""

    def next(self, head: Sequence[int]) -> tuple[int, ...]:
        """Return which tokens may follow the first ones of a path; none where it is complete."""
        return self._next.get(tuple(head), ())

    def along(self, path: Sequence[int]) -> list[tuple[int, ...]]:
        """Return, for every token of a path, which tokens could have stood in its place."""
        return [self.next(path[:cut]) for cut in range(len(path))]


class OptionTable:
    """Makes `Options` from actions, each set once."""

    def __init__(self, reply: Callable[[str], Sequence[int]], end: int) -> None:
        """Bind the codec's `reply` and `end`."""
        self._reply = reply
        self._end = end
        self._made = lru_cache(maxsize=4096)(self._make)

    def __call__(self, legal: tuple[str, ...]) -> Options:
        """Return the options of a decision."""
        return self._made(legal)

    def _make(self, legal: tuple[str, ...]) -> Options:
        return Options({action: self._reply(action) for action in legal}, self._end)
