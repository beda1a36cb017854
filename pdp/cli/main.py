"""Command `pdp` and its subcommands."""

from __future__ import annotations

import functools
import gc
import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

import click

from pdp import __version__
from pdp.cli.ending import abandon_output
from pdp.cli.logs import configure_logging
from pdp.cli.terminal import BAD_INPUT, fail
from pdp.cli.wiring import Wiring
from pdp.errors import ConfigError

_COMMANDS: Final[Mapping[str, str]] = {
    "audit": "Follow, verify and export the audit.",
    "bundle": "Build, sign and verify bundles of policies.",
    "check": "Decide checks from stdin.",
    "config": "Check the configuration of the service.",
    "dry-run": "Compare two sets of policies on the same checks.",
    "explain": "Explain why a check is allowed or denied.",
    "grants": "List and change the grants of the configured store.",
    "healthcheck": "Ask a running service whether it is ready.",
    "identity": "Say what a token becomes by the configuration.",
    "init": "Write a commented starter project with tests that pass.",
    "lint": "Check rule files and other policies before they are loaded.",
    "migrate": "Translate policies of Nessie, Lakekeeper or OpenFGA.",
    "pipeline": "Keep the audit as Iceberg tables, and ask them.",
    "policy": "Create, list and drop row policies and masks of the store.",
    "rewrite": "Rewrite SQL to show the rows of a caller alone.",
    "serve": "Serve decisions over HTTP and gRPC until SIGTERM.",
    "test": "Run policy tests.",
    "trino-config": "Print Trino's etc/access-control.properties.",
}
"""Name of a subcommand -> its help in one line. Each is a function in a module of the same name, or of `_ROOMS`."""
_ROOMS: Final[Mapping[str, str]] = {
    "config": "config.command",
    "dry_run": "dry_run.command",
    "grants": "grants.command",
    "healthcheck": "serve",
    "identity": "check",
    "init": "config.init",
    "pipeline": "lake",
    "policy": "grants.policy",
    "test": "test.command",
}
"""Function of a subcommand -> its module in this folder, where the names differ."""


class _LazyGroup(click.Group):
    """Group that imports a subcommand when the subcommand is called: the service and the help need none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the subcommands."""
        return list(_COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names of the subcommands with their help."""
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. If the output cannot be written, print one line on stderr and exit with BAD_INPUT."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except OSError as error:
            fail(abandon_output(error))
        return result

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a subcommand; None for an unknown name."""
        if cmd_name not in _COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        gc.disable()  # imports leave little garbage, but each collection visits all that was imported before
        try:
            command: click.Command = getattr(importlib.import_module(f"pdp.cli.{_ROOMS.get(name, name)}"), name)
        finally:
            gc.freeze()
            gc.enable()
        return _with_single_options(command)


def _with_single_options(command: click.Command | None) -> click.Command | None:
    """Make a command, and the commands below, raise UsageError for a second value of a single option."""
    if command is not None and "parse_args" not in vars(command):
        replaced: dict[str, Any] = {"parse_args": functools.partial(_parse_args, command, command.parse_args)}
        if isinstance(command, click.Group):
            get_command = command.get_command
            replaced["get_command"] = lambda ctx, name: _with_single_options(get_command(ctx, name))
        vars(command).update(replaced)
    return command


def _parse_args(
    command: click.Command, parse: Callable[[click.Context, list[str]], list[str]], ctx: click.Context, args: list[str]
) -> list[str]:
    rest = parse(ctx, list(args))
    _, _, order = command.make_parser(ctx).parse_args(args=list(args))
    for param in order:
        is_single = isinstance(param, click.Option) and not (param.multiple or param.is_flag or param.count)
        if is_single and sum(one is param for one in order) > 1:
            raise click.UsageError(
                f"`{param.opts[-1]}` is given twice, and takes one value: leave one of them out", ctx
            )
    return rest


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", message="pdp %(version)s")
def cli() -> None:
    """Decide who may do what in a lakehouse.

    Catalogs and query engines send their checks to a running service (`pdp serve`). The other commands work on policy
    files and need no service. To begin, run `pdp serve --example` and the printed curl command, or
    `pdp check --rules FILE < checks.jsonl`. A configuration is the file of -c, else ./pdp.yaml.

    The environment variable PDP_LOG_LEVEL sets the log level: debug, info, warning or error.

    Exit codes: 0 success, 1 a check or test failed, 2 wrong usage or bad input, 3 dry-run found differences.
    """
    try:
        configure_logging()
    except ConfigError as error:
        fail(str(error))


def run(composition: Wiring) -> NoReturn:
    """Run the command line and exit with the exit code. Usage errors are printed on one line, like all errors."""
    try:
        code = cli.main(obj=composition, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        raise SystemExit(BAD_INPUT) from None
    except click.ClickException as error:
        # click breaks lines before the choices of an option, and begins a sentence
        message = " ".join(error.format_message().split()).rstrip(".?").replace(". Choose from:", ", choose from:")
        context = error.ctx if isinstance(error, click.UsageError) else None
        fail(f"{message[:1].lower()}{message[1:]}" + (f", see `{context.command_path} --help`" if context else ""))
    except click.Abort:
        raise SystemExit(130) from None
    except OSError as error:
        fail(abandon_output(error))
    raise SystemExit(code if isinstance(code, int) else 0)
