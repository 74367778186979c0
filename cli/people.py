"""tenants and tokens."""

from typing import Annotated

import typer

from cli import exits
from cli.context import client
from cli.exits import CommandError
from cli.output import Form, FormOption, data, show

tenants = typer.Typer(help="List and create tenants.", invoke_without_command=True)
tokens = typer.Typer(help="List, create and revoke tokens.", invoke_without_command=True)


def register(commands: typer.Typer) -> None:
    """Add these commands."""
    commands.add_typer(tenants, name="tenants")
    commands.add_typer(tokens, name="tokens")


@tenants.callback()
def list_tenants(context: typer.Context, output: FormOption = Form.TABLE) -> None:
    """List the tenants, or create one."""
    if context.invoked_subcommand is None:
        _show_tenants(context, output)


@tenants.command("list")
def list_tenants_by_name(context: typer.Context, output: FormOption = Form.TABLE) -> None:
    """List the tenants."""
    _show_tenants(context, output)


def _show_tenants(context: typer.Context, output: Form) -> None:
    from libs.client import calls

    with client(context) as asking:
        lines = asking.ask(calls.tenants())
    show(output, lines, ("name", "created", "by"), ((t.name, t.created_at, t.created_by) for t in lines))


@tenants.command("create")
def create_tenant(context: typer.Context, name: Annotated[str, typer.Argument(help="The tenant's name.")]) -> None:
    """Create a tenant."""
    from libs.client import calls

    _expect_name(name)
    with client(context) as asking:
        made = asking.ask(calls.create_tenant(name))
    print(f"created tenant {made.name}")


def _expect_name(name: str) -> None:
    from pydantic import ValidationError

    from libs.client.models import NewTenant

    try:
        NewTenant(name=name)
    except ValidationError as error:
        remedy = "use a-z, 0-9 and -, at most 32 characters"
        raise CommandError(exits.BAD_INPUT, f"{name!r} is not a name of a tenant", remedy) from error


@tokens.callback()
def list_tokens(context: typer.Context, output: FormOption = Form.TABLE) -> None:
    """List tokens, create or revoke one."""
    if context.invoked_subcommand is None:
        _show_tokens(context, output)


@tokens.command("list")
def list_tokens_by_name(context: typer.Context, output: FormOption = Form.TABLE) -> None:
    """List tokens, without their secrets."""
    _show_tokens(context, output)


def _show_tokens(context: typer.Context, output: Form) -> None:
    from libs.client import calls

    with client(context) as asking:
        lines = asking.ask(calls.tokens())
    columns = ("id", "name", "role", "tenant", "created", "expires", "revoked")
    rows = ((t.id, t.name, t.role, t.tenant, t.created_at, t.expires_at, t.revoked_at) for t in lines)
    show(output, lines, columns, rows)


@tokens.command("create")
def create_token(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Whose token it is.")],
    *,
    role: Annotated[str, typer.Option(help="viewer, submitter, operator or admin.")],
    tenant: Annotated[str, typer.Option(help="One tenant, or * for the whole fleet.")],
    expires: Annotated[
        str | None, typer.Option(help="After this time, 1m at least, such as 12h or 30d; never, if left out.")
    ] = None,
    output: FormOption = Form.TABLE,
) -> None:
    """Create a token. Its secret is printed this once."""
    from pydantic import ValidationError

    from libs.client import calls
    from libs.client.models import NewToken
    from schemas.spec.parse import field_path
    from schemas.units import parse_duration

    try:
        seconds = parse_duration(expires) if expires is not None else None
        wanted = NewToken.model_validate({"name": name, "role": role, "tenant": tenant, "expires_in_seconds": seconds})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        option = field_path(first["loc"]).removesuffix("_in_seconds")
        raise CommandError(exits.BAD_INPUT, f"{option}: {first['msg']}", "see triplane tokens create --help") from error
    except ValueError as error:
        raise CommandError(exits.BAD_INPUT, f"--expires: {error}") from error
    with client(context) as asking:
        made = asking.ask(calls.create_token(wanted))
    if output is Form.TABLE:
        print(made.secret)
    else:
        data(output, made)


@tokens.command("revoke")
def revoke_token(context: typer.Context, token: Annotated[str, typer.Argument(help="A token's id.")]) -> None:
    """Revoke a token, at once and for ever."""
    from libs.client import calls

    with client(context) as asking:
        gone = asking.ask(calls.revoke_token(token))
    print(f"revoked {gone.name} ({gone.id})")
