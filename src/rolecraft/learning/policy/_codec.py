"""Between text and tokens: how a decision becomes a prompt, and an action a reply."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.conditioning import Rung, conditioned, usable_rung
from rolecraft.errors import UserError
from rolecraft.models import chat
from rolecraft.roles import Role
from rolecraft.worlds import Act, Rules, Table, View, World, play_all

if TYPE_CHECKING:
    from rolecraft.models import LocalModel

_WORDS = re.compile(r"\w+|[^\w\s]")
PAD, BEGIN, END, SPLIT, UNKNOWN = "<pad>", "<begin>", "<end>", "<split>", "<unk>"
SPECIAL = (PAD, BEGIN, END, SPLIT, UNKNOWN)


class Codec(Protocol):
    """Text to tokens and back, for one model."""

    end: int
    """The token that ends a reply."""

    def prompt(self, agent: str, role: str | None, observation: str) -> list[int]:
        """Return the tokens of a decision, up to where the reply begins."""
        ...

    def reply(self, action: str) -> list[int]:
        """Return the tokens of an action, without the end."""
        ...

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of a reply."""
        ...


def words(text: str) -> list[str]:
    """Cut text into runs of letters, digits and underscores, and single other signs; spaces only separate."""
    return _WORDS.findall(text)


class WordCodec:
    """Every word of a world's small vocabulary is a token.

    A prompt is `<begin> seat role <split> observation <split>`. Words that are not in the vocabulary are `<unk>`, and
    are counted in `unknown`.
    """

    def __init__(self, vocabulary: Iterable[str]) -> None:
        """Number the words.

        Args:
            vocabulary: Words as `words` cuts them; the order decides the numbers, repeats do not count.

        Raises:
            UserError: If there is none, or one is not a single word.
        """
        self.vocabulary = tuple(dict.fromkeys(vocabulary))
        broken = [word for word in self.vocabulary if words(word) != [word]]
        if not self.vocabulary or broken:
            raise UserError(f"vocabulary: expected single words, got {broken[0] if broken else 'none'!r}.")
        self.tokens = (*SPECIAL, *self.vocabulary)
        self._number = {word: number for number, word in enumerate(self.tokens)}
        self.end = self._number[END]
        self.unknown = 0

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def of_world(cls, make: Callable[[], World], *, episodes: int = 32, extra: Iterable[str] = ()) -> WordCodec:
        """Gather the words of random episodes: what is seen, what may be done, who acts.

        Args:
            make: Makes the world, whose actions are listed.
            episodes: How many to play; enough to see every word of a small world.
            extra: Texts whose words belong to it as well, such as role ids.

        Raises:
            UserError: If the world's actions are free text and `extra` is empty.
        """
        return cls(sorted({word for text in _texts(make, episodes, extra) for word in words(text)}))

    def prompt(self, agent: str, role: str | None, observation: str) -> list[int]:
        """Return the tokens of a decision."""
        who = [agent] if role is None or role == agent else [agent, role]
        head = [word for name in who for word in words(name)]
        return self._encode([BEGIN, *head, SPLIT, *words(observation), SPLIT])

    def reply(self, action: str) -> list[int]:
        """Return the tokens of an action."""
        return self._encode(words(action))

    def text(self, tokens: Sequence[int]) -> str:
        """Return words joined by spaces."""
        return " ".join(self.tokens[token] for token in tokens)

    def _encode(self, found: Sequence[str]) -> list[int]:
        unknown = self._number[UNKNOWN]
        numbers = [self._number.get(word, unknown) for word in found]
        self.unknown += numbers.count(unknown)
        return numbers


class ChatCodec:
    """A chat model's own tokenizer and template; a role is put on by a prompt, as a screen's rungs do it."""

    def __init__(self, model: LocalModel, roles: Mapping[str, Role] | None = None, rung: Rung = "instruction") -> None:
        """Bind a model.

        Args:
            model: Whose tokenizer and template are used.
            roles: Role by id; an id that is not among them is refused.
            rung: How roles are put on.
        """
        self._model = model
        self.roles = dict(roles or {})
        self.rung: Rung = rung
        self.end = int(model.tokenizer.eos_token_id)

    def prompt(self, agent: str, role: str | None, observation: str) -> list[int]:
        """Return the tokens of a chat.

        Raises:
            UserError: If the role is not known.
        """
        if role is None:
            return self._model.encode(chat(observation))
        if role not in self.roles:
            raise UserError(f"{agent}: role {role!r} is not among those of this policy ({', '.join(self.roles)}).")
        known = self.roles[role]
        return self._model.encode(conditioned(known, observation, usable_rung(known, self.rung)))

    def reply(self, action: str) -> list[int]:
        """Return the tokens of an action."""
        return list(self._model.tokenizer(action, add_special_tokens=False)["input_ids"])

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of a reply."""
        return str(self._model.tokenizer.decode(list(tokens), skip_special_tokens=True)).strip()


class _Random:
    """Acts at random, and remembers every text it saw."""

    def __init__(self, texts: list[str], free: Sequence[str]) -> None:
        self._texts = texts
        self._free = free

    def act(self, views: Sequence[View]) -> list[Act]:
        acts = []
        for view in views:
            options = view.legal if view.legal is not None else self._free
            if not options:
                raise UserError(
                    f"{view.agent} may say anything, so no vocabulary can be gathered; name texts in `extra`."
                )
            self._texts += [view.agent, view.observation, *options]
            acts.append(Act(str(np.random.default_rng(view.seed).choice(list(options)))))
        return acts


def _texts(make: Callable[[], World], episodes: int, extra: Iterable[str]) -> list[str]:
    texts = list(extra)
    policy = _Random(texts, list(texts))
    tables = []
    for number in range(episodes):
        world = make()
        texts += world.actions or ()
        tables.append(Table(world, dict.fromkeys(world.agents, policy), derive_seed("vocabulary", number)))
    play_all(tables, Rules(hashes=False))
    return texts
