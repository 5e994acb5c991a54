"""Rendering: one HTML file that needs nothing else and reaches for nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rolecraft._files import write_atomic
from rolecraft.report._build import build_page
from rolecraft.report._words import number, percent, signed

if TYPE_CHECKING:
    from rolecraft.screening._results import ScreenResults

TEMPLATES = Path(__file__).parent / "templates"
SCRIPTS = ("draw.js", "report.js")


def write_report(results: ScreenResults, path: Path) -> Path:
    """Write `report.html`, atomically, and return its path.

    The page holds its styles, script and data, loads nothing (its own policy forbids it) and runs no script but its
    own. Roles' and models' texts are escaped in the markup and only ever set as text by the script. Its size does not
    grow with the number of questions: aggregated numbers, and three example questions per role.
    """
    path = Path(path)
    write_atomic(path, render(results))
    return path


def render(results: ScreenResults) -> str:
    """Return the page."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    page, drawings = build_page(results)
    script = "\n".join((TEMPLATES / name).read_text(encoding="utf-8") for name in SCRIPTS)
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "signed": signed, "percent": percent}
    return environment.get_template("report.html.j2").render(
        **page,
        style=Markup((TEMPLATES / "report.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_hash=_content_hash(script),
        data=Markup(script_json(drawings)),
    )


def script_json(value: Any) -> str:
    """Return JSON that may stand inside a script element: no markup can begin in it, and NaN is refused."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _content_hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
