"""The command `rolecraft`. Each subcommand lives in a module of its own and imports what it needs when it is called."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated

import typer

from rolecraft import __version__
from rolecraft._cli._errors import guarded

app = typer.Typer(
    help="Define a role once, condition a policy on it, and screen it before you rely on it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

COMMANDS = {
    "roles": ("_roles", "app"),
    "screen": ("_screen", "screen"),
    "systems": ("_systems", "app"),
    "show": ("_show", "show"),
    "simulate": ("_simulate", "simulate"),
    "measure": ("_measure", "measure"),
    "train": ("_train", "train"),
    "guard": ("_guard", "app"),
}
"""Name to (module, object): a typer application, or a function."""


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"rolecraft {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


for _name, (_module, _attribute) in COMMANDS.items():
    _command = getattr(import_module(f"rolecraft._cli.{_module}"), _attribute)
    if isinstance(_command, typer.Typer):
        app.add_typer(_command, name=_name)
    else:
        app.command(_name)(_command)


def main() -> None:
    """Run the command line."""
    sys.exit(guarded(lambda: app(prog_name="rolecraft", standalone_mode=False)))


if __name__ == "__main__":
    main()
