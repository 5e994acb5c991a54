"""`rolecraft guard check|lint|diff|generate|audit`."""

from __future__ import annotations

import json as json_format
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rolecraft._cli._output import print_json, print_table

if TYPE_CHECKING:
    from rolecraft.guard import ToolDifference, ToolSchema

app = typer.Typer(
    help="Check calls against policies, policies themselves, and what teams make of changed role texts.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PolicyFile = Annotated[Path, typer.Argument(metavar="POLICY", help="A policy, as YAML or JSON.")]
Tools = Annotated[
    Path | None,
    typer.Option(metavar="TOOLS.json", help="Schemas of the tools, as an MCP server or an OpenAI request lists them."),
]


@app.command()
def check(
    policy: PolicyFile,
    calls: Annotated[
        Path, typer.Argument(metavar="CALLS.jsonl", help="One call a line: name, arguments and, if need be, role.")
    ],
    role: Annotated[str, typer.Option(metavar="ROLE", help="Who calls, where a line does not say.")] = "",
    tools: Tools = None,
    json: Json = False,
) -> None:
    """Say what a policy decides about calls, in order; updates that rules make hold for the calls after.

    Exit code: 0 if all are allowed, 1 if any is not, 2 if a file cannot be read.
    """
    from rolecraft.guard import PolicyGuard, ToolCall, load_policy

    guard = PolicyGuard(load_policy(policy), _schemas(tools))
    rows = []
    for line, entry in _calls(calls):
        who = entry.get("role", role)
        said = guard.decide(who, ToolCall(entry["name"], entry.get("arguments", {})))
        rows.append(
            {"line": line, "role": who, "tool": entry["name"], "effect": said.effect, "rule": said.rule}
            | {"reason": said.reason, "version": said.version}
        )
    allowed = sum(row["effect"] == "allow" for row in rows)
    if json:
        print_json({"policy": str(policy), "version": guard.version, "calls": rows, "allowed": allowed})
    else:
        columns = ["line", *(["role"] if any(row["role"] for row in rows) else []), "tool", "effect", "rule", "reason"]
        print_table(rows, columns, wrap=["reason"])
        typer.echo(f"{len(rows)} calls: {allowed} allowed, {len(rows) - allowed} not (policy version {guard.version})")
    raise typer.Exit(0 if allowed == len(rows) else 1)


@app.command()
def lint(policy: PolicyFile, tools: Tools = None, json: Json = False) -> None:
    """Find wrong types, unknown tools and arguments, overlaps, rules that never decide, look-alike letters.

    Exit code: 0 if there is nothing but warnings, 1 if there is an error, 2 if a file cannot be read.
    """
    from rolecraft.guard import lint_policy, load_policy

    loaded = load_policy(policy)
    found = lint_policy(loaded, _schemas(tools))
    errors = sum(finding.severity == "error" for finding in found)
    if json:
        print_json([asdict(finding) for finding in found])
    else:
        if found:
            print_table([asdict(each) for each in found], ["where", "kind", "severity", "message"], wrap=["message"])
        names = {tool for role in (None, *loaded.roles) for tool in loaded.rules(role)}
        typer.echo(f"{loaded.name}: {len(names)} tools, {errors} errors, {len(found) - errors} warnings")
        if tools is None:
            typer.echo("Names and types of arguments were not checked; give --tools TOOLS.json.")
    raise typer.Exit(1 if errors else 0)


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The policy that holds now.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The one that shall hold.")],
    tools: Tools = None,
    json: Json = False,
) -> None:
    """Say whether a new policy allows less or more than an old one, with a call that shows it.

    Every call that is shown was tried on both policies. What can be neither shown nor refuted is called unknown and
    counts as widening.

    Exit code: 0 if the new one is equal or narrower, 1 if it is wider, incomparable or unknown, 2 if a file cannot be
    read.
    """
    from rolecraft.guard import load_policy, policy_diff

    found = policy_diff(load_policy(old), load_policy(new), _schemas(tools))
    rows = [_row(each) for each in found.tools]
    if json:
        print_json({"relation": found.relation, "widens": found.widens, "tools": rows})
    else:
        if rows:
            shown = [{**row, "gained": _text(row["gained"]), "lost": _text(row["lost"])} for row in rows]
            columns = [name for name in shown[0] if name in ("tool", "relation") or any(row[name] for row in shown)]
            print_table(shown, columns, wrap=["gained", "lost", "note"])
        joined = {"equal": "allows what {} allows", "narrower": "allows less than {}", "wider": "allows more than {}",
                  "incomparable": "allows some calls that {} does not, and the other way round",
                  "unknown": "may allow more than {}: that could be neither shown nor refuted"}  # fmt: skip
        typer.echo(f"{new} {joined[found.relation].format(old)}.")
    raise typer.Exit(1 if found.widens else 0)


@app.command()
def generate(
    tools: Annotated[Path, typer.Argument(metavar="TOOLS.json", help="Schemas of the tools, as for --tools.")],
    task: Annotated[str, typer.Option(help="What the user wants, in words.")],
    out: Annotated[Path, typer.Option(metavar="POLICY.yaml", help="Where the policy is written.")],
    model: Annotated[str, typer.Option(metavar="MODEL", help="Who writes it.")] = "local:smollm2",
    base: Annotated[
        Path | None, typer.Option(metavar="POLICY", help="What people wrote: its rules stay, and go first.")
    ] = None,
    role: Annotated[str, typer.Option(metavar="ROLE", help="Whose rules are written. Default: everybody's.")] = "",
    tries: Annotated[int, typer.Option(help="Most replies that are asked for.")] = 5,
    seed: Annotated[int, typer.Option(help="Of the replies after the first.")] = 0,
    json: Json = False,
) -> None:
    """Let a model write the rules for one task: only what the task needs, checked and linted before it is written.

    What the model writes comes after the rules of --base. If no reply can be used, the file allows what --base allows,
    and without one nothing.

    Exit code: 0 if the model wrote rules, 1 if it did not, 2 if a file or the model cannot be used.
    """
    import yaml

    from rolecraft._files import write_atomic
    from rolecraft.guard import PolicyWriter, load_policy, read_tools
    from rolecraft.models import load_model

    written = None if base is None else load_policy(base)
    writer = PolicyWriter(load_model(model), task, read_tools(tools), written, role, tries, seed=seed)
    made = writer.write()
    row = {"description": f"written by {model} for: {task}", **made.policy.row()}
    write_atomic(out, yaml.safe_dump(row, sort_keys=False, allow_unicode=True))
    if json:
        print_json({
            "out": str(out), "failed": made.failed, "tries": [each._asdict() for each in made.tries],
            "policy": made.policy.row(), "findings": [asdict(each) for each in made.findings],
            "ungrounded": list(made.ungrounded),
        })  # fmt: skip
        raise typer.Exit(1 if made.failed else 0)
    tried = [{"try": number, **each._asdict()} for number, each in enumerate(made.tries, 1)]
    print_table(tried, ["try", "kind", "reason"], wrap=["reason"])
    if made.failed:
        what = f"what {base} allows" if base else "nothing"
        typer.echo(
            f"error: {made.failed}. {out} allows {what}; try another --model, or write the rules by hand.", err=True
        )
        raise typer.Exit(1)
    if made.findings:
        rows = [asdict(each) for each in made.findings]
        print_table(rows, ["where", "kind", "severity", "message"], wrap=["message"])
    for each in made.ungrounded:
        typer.echo(f"Not in the task, so look at it: {each}")
    typer.echo(
        f"{out}: {len(made.policy.rules(role or None))} tools may be called under rules; all others are blocked."
    )


@app.command()
def audit(
    file: Annotated[Path, typer.Argument(metavar="TEAM.yaml", help="Team, canary policies and tasks.")],
    model: Annotated[
        str,
        typer.Option(metavar="MODEL", help="Who plays the members; graded is the scripted member. Default: file's."),
    ] = "",
    encoder: Annotated[str, typer.Option(help="Of the similarity of texts: minilm, or words (no model).")] = "minilm",
    seed: Annotated[int, typer.Option(help="Of edits and runs.")] = 0,
    json: Json = False,
) -> None:
    """Measure how far changed role texts make a team break harmless canary policies, and what a guard saves.

    Rates are shown as not refused / partial / full with the 95 % interval of the last. Exit code: 0 if no text at the
    asked similarity raised full violations by more than chance, 1 if one did, 2 if the file cannot be used.
    """
    import warnings

    from rolecraft.guard.audit import read_audit

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the report lists them
        report = read_audit(file, model=model or None, encoder=encoder).run(seed)
    if json:
        print_json(report.plain())
    else:
        rows = [
            {"text": row["arm"], "level": row["level"], "where": row["where"], "similarity": f"{row['similarity']:.2f}"}
            | {name.replace("_", " "): f"{row[name][0]:.0%}" for name in ("not_refused", "partial", "full")}
            | {"interval": f"{row['full'][1]:.0%} to {row['full'][2]:.0%}", "probes": row["n"]}
            for row in report.plain()["rows"]
        ]
        print_table(rows, list(rows[0]))
        before, after, alarms = report.generated.rate("full"), report.guarded.rate("full"), report.clean.false_alarms
        if report.worst_role:
            typer.echo(f"The text that matters most at the agent level: {report.worst_role}.")
        typer.echo(
            f"Guard: full violations under generated texts {before.estimate:.0%} before, {after.estimate:.0%} with it; "
            f"false alarms {alarms.estimate:.1%} (at most {alarms.high:.1%})."
        )
        for note in report.warnings:
            typer.echo(f"Note: {note}.")
    raise typer.Exit(1 if report.weak else 0)


def _row(each: ToolDifference) -> dict[str, Any]:
    gained, lost = (None if one is None else one.arguments for one in (each.gained, each.lost))
    named = {"role": each.role, "tool": each.tool, "relation": each.relation}
    return named | {"gained": gained, "lost": lost, "note": each.note}


def _text(arguments: dict[str, Any] | None) -> str:
    return "" if arguments is None else json_format.dumps(arguments, ensure_ascii=False)


def _schemas(path: Path | None) -> dict[str, ToolSchema] | None:
    from rolecraft.guard import read_tools

    return None if path is None else read_tools(path)


def _calls(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """Read the calls of a JSONL file with their line numbers."""
    from rolecraft._files import parse_json, read_text
    from rolecraft._options import refuse_unknown
    from rolecraft.errors import UserError

    found = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip():
            continue
        entry = parse_json(line, path, number)
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise UserError(f"{path}:{number}: expected an object with a name and arguments, got {line.strip():.80}.")
        refuse_unknown(entry, ("name", "arguments", "role"), f"{path}:{number}: a call")
        if not isinstance(entry.get("role", ""), str):
            raise UserError(f"{path}:{number}: role: expected the id of a role, got {entry['role']!r:.60}.")
        found.append((number, entry))
    if not found:
        raise UserError(f"{path}: no calls; expected one JSON object a line.")
    return found
