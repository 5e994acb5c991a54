"""From a model string to a language model."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rolecraft.errors import MissingDependencyError, UserError, did_you_mean
from rolecraft.models._base import LanguageModel

if TYPE_CHECKING:
    from rolecraft.models._local import LocalModel

_EXTRA = ("torch", "transformers", "gguf")
"""What the extra `lm` installs for local models."""
HOSTED = "https://api.openai.com/v1"
"""Where `openai/NAME` goes if the environment variable OPENAI_BASE_URL does not say otherwise."""


def load_model(spec: str, **options: Any) -> LanguageModel:
    """Load the language model that a string names.

    | string | model |
    |---|---|
    | `local:smollm2`, `local:PATH` | `LocalModel`: the embedded model, a GGUF file or a Hugging Face folder |
    | `openai:NAME@URL` | `ServedModel` at an OpenAI-compatible base URL: `openai:qwen@http://127.0.0.1:8000/v1` |
    | `openai/NAME` | the same (the form Inspect uses), at the URL of OPENAI_BASE_URL or else at OpenAI's own |
    | `scripted:PRESET` | `rolecraft.testing.ScriptedModel` |

    Args:
        spec: The model string.
        options: Passed on to the model's constructor (`device=`, `concurrency=`, `meter=`, ...).

    Raises:
        UserError: If the scheme is unknown or its rest cannot be used.
        MissingDependencyError: If a package or weights file of the model is not installed.
    """
    scheme, mark, rest = spec.partition(":")
    if not mark or "/" in scheme:
        scheme, mark, rest = spec.partition("/")
        if scheme == "openai" and rest and "@" not in rest:
            rest = f"{rest}@{os.environ.get('OPENAI_BASE_URL') or HOSTED}"
    if scheme not in _LOADERS or not rest:
        known = ", ".join(f"{name}:{form}" for name, form in _FORMS.items())
        raise UserError(f"{spec!r} names no model.{did_you_mean(scheme, _LOADERS)} Expected one of: {known}.")
    return _LOADERS[scheme](rest, options)


def load_local(spec: str, **options: Any) -> LocalModel:
    """Load a model whose states can be read and edited.

    Raises:
        UserError: If the string names another kind of model.
    """
    if not spec.startswith("local:"):
        model = load_model(spec)
        raise UserError(
            f"model {model.name!r} gives no access to its states, which are read or edited here; use local:smollm2 or "
            "local:PATH."
        )
    from rolecraft.models._local import LocalModel

    found = load_model(spec, **options)
    assert isinstance(found, LocalModel)
    return found


def _local(rest: str, options: dict[str, Any]) -> LanguageModel:
    try:
        from rolecraft.models._local import LocalModel

        return LocalModel.load(rest, **options)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRA:
            raise
        raise MissingDependencyError(f"local models need {package}: pip install 'rolecraft[lm]'.") from None


def _openai(rest: str, options: dict[str, Any]) -> LanguageModel:
    from rolecraft.models._served import ServedModel

    return ServedModel.parse(rest, **options)


def _scripted(rest: str, options: dict[str, Any]) -> LanguageModel:
    from rolecraft.testing import ScriptedModel

    return ScriptedModel(rest, **options)


_LOADERS: dict[str, Callable[[str, dict[str, Any]], LanguageModel]] = {
    "local": _local,
    "openai": _openai,
    "scripted": _scripted,
}
_FORMS = {"local": "smollm2|PATH", "openai": "NAME@URL", "scripted": "PRESET"}
