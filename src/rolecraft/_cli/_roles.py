"""`rolecraft roles lint|show|import`."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from rolecraft._cli._output import print_json, print_table

app = typer.Typer(help="Look at, check and import roles.", no_args_is_help=True, rich_markup_mode=None)

FORMAT_HELP = "auto, character-card, assistant-axis, tinytroupe, sotopia, csv or jsonl."
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Source = Annotated[str, typer.Argument(metavar="INVENTORY", help="Bundled name (core-v1), a file, or a folder.")]


@app.command("lint")
def lint_command(
    inventory: Source,
    questions: Annotated[str, typer.Option(help="Evaluation questions to hold the roles against.")] = "questions-v1",
    json: Json = False,
) -> None:
    """Find near-duplicates, templates, thin profiles, leaking names and questions.

    Exit code: 0 if there is nothing but warnings, 1 if there is an error, 2 if the roles cannot be read. Likeness of
    meaning needs the extra `lm`; without it those rules are left out, and named.
    """
    from rolecraft.errors import MissingDependencyError
    from rolecraft.roles import MEANING_RULES, lint, load_inventory, load_questions

    roles, bank = load_inventory(inventory), load_questions(questions)
    embedder = None
    try:
        from rolecraft.models import Embedder

        embedder = Embedder.load()
    except (MissingDependencyError, ModuleNotFoundError) as error:
        typer.echo(f"left out: {', '.join(MEANING_RULES)} ({error})", err=True)
    findings = lint(roles, bank, embedder)
    errors = sum(finding.severity == "error" for finding in findings)
    if json:
        print_json([asdict(finding) for finding in findings])
    else:
        if findings:
            print_table([asdict(f) for f in findings], ["role", "rule", "severity", "message"], wrap=["message"])
        typer.echo(f"{len(roles)} roles, hash {roles.hash}: {errors} errors, {len(findings) - errors} warnings")
    raise typer.Exit(1 if errors else 0)


@app.command()
def show(
    inventory: Source,
    role: Annotated[str, typer.Argument(metavar="[ROLE]", help="Id of one role, to be shown whole.")] = "",
    json: Json = False,
) -> None:
    """Show an inventory, or one role of it."""
    from rolecraft.roles import load_inventory

    roles = load_inventory(inventory)
    if role:
        found = roles[role]
        fields = found.model_dump(mode="json", exclude_defaults=True)
        if json:
            print_json({**fields, "hash": found.hash})
        else:
            import yaml

            typer.echo(yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=110) + f"hash: {found.hash}")
        return
    rows = [_summary(entry) for entry in roles]
    if json:
        print_json({"name": roles.name, "version": roles.version, "hash": roles.hash, "roles": rows})
        return
    print_table(rows, ["id", "family", "level", "questions", "tags"])
    families = ", ".join(f"{family or 'none'} {count}" for family, count in Counter(r.family for r in roles).items())
    typer.echo(f"{roles.name} {roles.version}: {len(roles)} roles, hash {roles.hash} ({families})")


def _summary(role: Any) -> dict[str, Any]:
    return {
        "id": role.id,
        "name": role.name,
        "family": role.family,
        "level": role.level,
        "questions": len(role.questions),
        "tags": ", ".join(role.tags),
        "hash": role.hash,
    }


@app.command("import")
def import_command(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files of another project.")],
    out: Annotated[Path, typer.Option(help="Inventory to write: .yaml, .json, .jsonl or .csv.")],
    format: Annotated[str, typer.Option(help=FORMAT_HELP)] = "auto",
    json: Json = False,
) -> None:
    """Read the role files of other projects into one inventory, and say what could not be carried over.

    They are character cards V2 and V3 (JSON or PNG), role files of the Assistant Axis, TinyTroupe agents, Sotopia agent
    profiles, and tables of roles (CSV with ` | ` between the items of a list, or JSONL).
    """
    from rolecraft.roles import import_roles, save_inventory

    imported = import_roles(files, format)
    save_inventory(imported.inventory, out)
    if json:
        print_json({"out": str(out), "roles": [r.id for r in imported.inventory], "left_out": imported.left_out})
        return
    for role, fields in imported.left_out.items():
        typer.echo(f"{role}: not carried over: {', '.join(fields)}")
    typer.echo(f"{len(imported.inventory)} roles written to {out}; look them over with `rolecraft roles lint {out}`")
