"""A language model without weights: it reads the prompt and answers by a script, the same way every time."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rolecraft.errors import ServerError, UserError, did_you_mean
from rolecraft.models._base import Chat, Completion, FloatArray, Sampling
from rolecraft.testing._scripts import PRESETS

if TYPE_CHECKING:
    from rolecraft.conditioning import Steering

Script = Callable[[Chat, int], str | Completion]
"""From a chat and a seed to the reply; a whole `Completion` lets a script play a failed row."""

_TOKEN = re.compile(r"\w+|[^\w\s]")
_FOLLOWS, _READS, _RARE = 0.6, 0.3, 1e-4


class ScriptedModel:
    """A deterministic `LanguageModel` for tests, studies and dry runs.

    Presets (each reads the prompt, so that a wrong prompt shows):

    | preset | replies |
    |---|---|
    | role-player | as the role of the prompt, out of the prompt's own words; without a role, plain assistant text |
    | echo | the last user message |
    | refuser | a refusal |
    | nonsense | text that is not the JSON a judge must reply with |
    | judge | JSON: every key the prompt asks for, scored by the words the answer shares with the role's text |

    A token is a word or a punctuation mark. `logprobs` scores token t of a reply with
    `log(0.6 [t is the script's own next token] + 0.3 n(t) / N + 1e-4)`, where the script's own reply (seed 0) counts
    while the reply has followed it so far, and n(t) / N is the share of t among the chat's tokens, in lower case. A
    choice among options therefore falls on what the script would say, and else on words of the prompt.
    """

    def __init__(self, script: Script | str = "role-player", *, name: str = "", fail_at: int | None = None) -> None:
        """Make a model of a script.

        Args:
            script: A function from (chat, seed) to the reply, or the name of a preset.
            name: Model string; default `scripted:<preset>` or `scripted:<name of the function>`.
            fail_at: The reply, counted from 1, at which `ServerError` is raised once; later calls succeed.

        Raises:
            UserError: If there is no such preset.
        """
        if isinstance(script, str):
            if script not in PRESETS:
                known = ", ".join(sorted(PRESETS))
                raise UserError(f"no scripted model {script!r}.{did_you_mean(script, PRESETS)} Known: {known}.")
            name = name or f"scripted:{script}"
        self._script: Script = PRESETS[script] if isinstance(script, str) else script
        self._name = name or f"scripted:{getattr(script, '__name__', 'script')}"
        self.fail_at = fail_at
        self.calls = 0
        """Replies asked for so far, the failed one included."""

    @property
    def name(self) -> str:
        """Model string."""
        return self._name

    @property
    def revision(self) -> str:
        """Version of the scripts and the scorer."""
        return "scripted-1"

    def generate(
        self,
        chats: Sequence[Chat],
        sampling: Sampling,
        steering: Steering | None = None,
        seeds: Sequence[int] | None = None,
    ) -> list[Completion]:
        """Reply to each chat; `max_tokens` cuts the reply after as many words and marks, temperature has no effect.

        Raises:
            UserError: If the chats are steered, or there are not as many seeds as chats.
            ServerError: At the reply `fail_at`.
        """
        if steering is not None and any(steering.rows):
            raise UserError(f"{self.name} has no residual stream to steer; use a local model.")
        seeds = [0] * len(chats) if seeds is None else seeds
        if len(seeds) != len(chats):
            raise UserError(f"expected one seed per chat, got {len(seeds)} seeds for {len(chats)} chats.")
        return [self._reply(chat, sampling, seed) for chat, seed in zip(chats, seeds, strict=True)]

    def _reply(self, chat: Chat, sampling: Sampling, seed: int) -> Completion:
        self.calls += 1
        if self.calls == self.fail_at:
            raise ServerError(f"{self.name} was told to fail at reply {self.fail_at}.")
        said = self._script(chat, seed)
        if isinstance(said, Completion):
            return said
        tokens = list(_TOKEN.finditer(said))
        kept = tokens[: sampling.max_tokens]
        return Completion(
            text=said if len(kept) == len(tokens) else said[: kept[-1].end()],
            finish="stop" if len(kept) == len(tokens) else "length",
            prompt_tokens=sum(len(_TOKEN.findall(message["content"])) for message in chat),
            tokens=len(kept),
        )

    def logprobs(self, chats: Sequence[Chat], replies: Sequence[str]) -> list[FloatArray]:
        """Score the tokens of each reply given its chat, by the formula of the class.

        Raises:
            UserError: If there are not as many replies as chats.
        """
        if len(chats) != len(replies):
            raise UserError(f"expected one reply per chat, got {len(replies)} replies for {len(chats)} chats.")
        return [self._score(chat, reply) for chat, reply in zip(chats, replies, strict=True)]

    def _score(self, chat: Chat, reply: str) -> FloatArray:
        said = self._script(chat, 0)
        own = _TOKEN.findall(said.text if isinstance(said, Completion) else said)
        read = Counter(token for message in chat for token in _TOKEN.findall(message["content"].lower()))
        size = max(1, read.total())
        scores, follows = [], True
        for place, token in enumerate(_TOKEN.findall(reply)):
            follows = follows and place < len(own) and own[place] == token
            scores.append(math.log(_FOLLOWS * follows + _READS * read[token.lower()] / size + _RARE))
        return np.array(scores, dtype=np.float32)
