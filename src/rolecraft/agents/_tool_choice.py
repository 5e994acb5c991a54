"""Tool calls by log-probability, for models that cannot write JSON: a name, then values among spans of the dialogue."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from rolecraft.agents._tools import Argument, Call, Tool, ToolRegistry
from rolecraft.models import Chat, LanguageModel

NONE = "none"
"""The option of calling nothing."""
_WORD = re.compile(r"[\w'-]+")
_SMALL = frozenset(
    _WORD.findall(
        "a an and any are as at be by can could did do does for from get give got had has have he how i if in is it "
        "its me much many my no not of on or our out please say she so some that the their them then there they "
        "this to up us was we were what when where which who why will with would yes you your"
    )
)


@dataclass
class ToolChooser:
    """Chooses calls by log-probability; a question asked before is answered from memory.

    A name's score is its mean log-probability per token in the chat less that after `premise`, which takes away what
    its wording, and its place in a list, are worth whatever is asked (contextual calibration, arXiv 2102.09690).

    Args:
        model: Scores the options.
        registry: The tools there are.
        premise: A chat that lists every name, asks for one and says nothing of substance.
        decoys: Names offered to the model as well, though no tool has them, as free text would let it write them.
    """

    model: LanguageModel
    registry: ToolRegistry
    premise: Chat
    decoys: Sequence[str] = ()
    _memory: dict[tuple[str, tuple[str, ...]], int] = field(default_factory=dict, repr=False)

    def choose(self, chats: Sequence[Chat], filling: Sequence[Chat], dialogues: Sequence[str]) -> list[list[Call]]:
        """Return at most one call per row.

        Args:
            chats: In which the name of a function, or `none`, is the reply.
            filling: In which arguments are filled: the user's last message is followed by the signature of the tool
                and the name of the argument.
            dialogues: What was said, from which values are taken.
        """
        names = [NONE, *self.registry, *self.decoys]
        likings = dict(zip(names, self._scores([(self.premise, name) for name in names]), strict=True))
        picked = [names[index] for index in self._pick(chats, [names] * len(chats), likings)]
        values: list[dict[str, object]] = [{} for _ in chats]
        wanted = [
            (row, self.registry[name], argument)
            for row, name in enumerate(picked)
            if name in self.registry
            for argument in self.registry[name].arguments
        ]
        options = [value_spans(tool.arguments[name], name, dialogues[row]) for row, tool, name in wanted]
        asked = [_asking(filling[row], tool, name) for row, tool, name in wanted]
        # Quotes, because a mean log-probability cannot tell `stone` from `stone mace` without an end.
        quoted = [[f'"{span}"' for span in spans] for spans in options]
        for (row, tool, name), given, index in zip(wanted, options, self._pick(asked, quoted, {}), strict=True):
            number = tool.arguments[name].type == "integer" and given[index].isdigit()
            values[row][name] = int(given[index]) if number else given[index]
        return [[] if name == NONE else [Call(name, filled)] for name, filled in zip(picked, values, strict=True)]

    def _pick(self, chats: Sequence[Chat], options: Sequence[Sequence[str]], likings: Mapping[str, float]) -> list[int]:
        keys = [(repr(list(asked)), tuple(given)) for asked, given in zip(chats, options, strict=True)]
        fresh = {key: row for row, key in enumerate(keys) if key not in self._memory}
        scores = iter(self._scores([(chats[row], option) for row in fresh.values() for option in options[row]]))
        for key, row in fresh.items():
            self._memory[key] = int(np.argmax([next(scores) - likings.get(option, 0.0) for option in options[row]]))
        return [self._memory[key] for key in keys]

    def _scores(self, pairs: Sequence[tuple[Chat, str]]) -> list[float]:
        found = self.model.logprobs([asked for asked, _ in pairs], [option for _, option in pairs])
        return [float(values.mean()) for values in found]


def value_spans(argument: Argument, name: str, dialogue: str) -> list[str]:
    """Return what a model may fill an argument with.

    Numbers of the dialogue for a number, else its runs of one or two words without small words; and one value that was
    never said (the argument's name, or 1), which a model that does not look may take.
    """
    if argument.type in ("integer", "number"):
        found = re.findall(r"(?<!\w)\d+(?!\w)", dialogue)
        return list(dict.fromkeys([*found, "1"]))
    spans: list[str] = []
    for sentence in re.split(r"[.!?,:\n]", dialogue.lower()):
        words = _WORD.findall(sentence)
        spans += [word for word in words if word not in _SMALL]
        spans += [f"{a} {b}" for a, b in pairwise(words) if not {a, b} & _SMALL]
    return list(dict.fromkeys([*spans, name]))


def _asking(asked: Chat, tool: Tool, argument: str) -> Chat:
    *earlier, last = asked
    wish = f"What is the value of {argument}? Reply with the value in double quotes."
    text = f"{last['content']}\n\nFunction: {tool.line}\n{wish}"
    return [*earlier, {"role": last["role"], "content": text}]
