"""The whole stack on this machine, run by `python -m deploy.embedded`: up, down, demo, backup and so on."""

import os
import sys
from collections.abc import Sequence
from typing import Final

import typer

_PASS_ON: Final = {"allow_extra_args": True, "ignore_unknown_options": True}


def register(commands: typer.Typer) -> None:
    """Add these commands."""
    for command in (up, down, status, doctor, demo, backup, restore):
        commands.command(context_settings=_PASS_ON, add_help_option=False)(command)
    commands.command("lift-stop", context_settings=_PASS_ON, add_help_option=False)(lift_stop)


def up(context: typer.Context) -> None:
    """Start the whole stack on this machine (--detach leaves it running)."""
    _run("up", context.args)


def down(context: typer.Context) -> None:
    """Stop the stack on this machine."""
    _run("down", context.args)


def status(context: typer.Context) -> None:
    """Show what runs of the stack on this machine."""
    _run("status", context.args)


def doctor(context: typer.Context) -> None:
    """Check whether this machine can run the stack, and say what to do."""
    _run("doctor", context.args)


def demo(context: typer.Context) -> None:
    """Run real jobs through a whole stack on this machine and show what happens."""
    _run("demo", context.args)


def backup(context: typer.Context) -> None:
    """Write ledger, credentials and fleet of the stack on this machine into one file."""
    _run("backup", context.args)


def restore(context: typer.Context) -> None:
    """Make the stack of a backup on this machine, stopped."""
    _run("restore", context.args)


def lift_stop(context: typer.Context) -> None:
    """Let the stack on this machine grant again after a restore."""
    _run("lift-stop", context.args)


def _run(command: str, arguments: Sequence[str]) -> None:
    """Become the stack's own command: every signal reaches it, and its exit code is ours."""
    os.execv(sys.executable, [sys.executable, "-m", "deploy.embedded", command, *arguments])  # noqa: S606 (no shell)
