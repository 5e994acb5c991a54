from __future__ import annotations

import subprocess
import sys

import pytest

from rolecraft.errors import UserError
from rolecraft.models import Sampling, ServedModel, chat, load_model
from rolecraft.testing import ScriptedModel
from tests.models.fake_server import FakeServer


def test_scripted() -> None:
    model = load_model("scripted:echo", fail_at=2)
    assert isinstance(model, ScriptedModel)
    assert model.name == "scripted:echo"
    assert model.fail_at == 2


@pytest.mark.parametrize("name", ["m", "org/m", "m:latest", "m@v2"])
def test_openai_with_a_url(name: str) -> None:
    with FakeServer(listing=[{"id": name}]) as server:
        model = load_model(f"openai:{name}@{server.url}", concurrency=2)
        assert isinstance(model, ServedModel)
        assert model.name == f"openai:{name}"
        assert model.generate([chat("x")], Sampling())[0].text == "echo x"
        assert server.bodies[0]["model"] == name


@pytest.mark.parametrize("name", ["m", "org/m", "m:latest"])
def test_inspect_style_names_take_the_url_of_the_environment(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        model = load_model(f"openai/{name}")
        assert model.generate([chat("x")], Sampling())[0].text == "echo x"
        assert server.bodies[0]["model"] == name


def test_inspect_style_names_go_to_openai_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert load_model("openai/m").name == "openai:m"


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("opnai:m@http://x/v1", r"Did you mean 'openai'\?.*local:.*openai:.*scripted:"),
        ("smollm2", r"'smollm2' names no model.*local:smollm2"),
        ("local:", "names no model"),
        ("anthropic/claude", "names no model"),
        ("", "names no model"),
        ("openai:m", "openai:NAME@URL"),
        ("openai:m@127.0.0.1:8000", "openai:NAME@URL"),
        ("scripted:role-playr", r"Did you mean 'role-player'\?"),
    ],
)
def test_unusable_strings_say_what_is_expected(spec: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        load_model(spec)


def test_local_passes_options_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from rolecraft.models import LocalModel

    seen: list[tuple[str, dict[str, object]]] = []
    monkeypatch.setattr(LocalModel, "load", lambda spec, **options: seen.append((spec, options)) or "model")
    assert load_model("local:/a:b/c", dtype="float32") == "model"  # type: ignore[comparison-overlap]
    assert seen == [("/a:b/c", {"dtype": "float32"})]


@pytest.mark.parametrize("package", ["torch", "transformers"])
def test_a_missing_extra_is_named(package: str) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None; from rolecraft.models import load_model\n"
        "from rolecraft.errors import MissingDependencyError\n"
        "try: load_model('local:smollm2')\n"
        "except MissingDependencyError as error: print(error)"
    )
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert told == f"local models need {package}: pip install 'rolecraft[lm]'.\n"


def test_served_and_scripted_models_need_no_torch() -> None:
    code = (
        "import sys; from rolecraft.models import load_model;"
        "load_model('openai:m@http://127.0.0.1:1/v1'); load_model('scripted:judge');"
        "sys.exit(bool({'torch', 'transformers', 'sentence_transformers'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
