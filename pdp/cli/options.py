"""Options of several commands, and the settings chosen by them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from pdp.cli.terminal import note_at_end
from pdp.cli.wiring import EXAMPLE, Wiring, chosen_file
from pdp.config.load import load_settings
from pdp.config.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])
_EXAMPLE_KEY: Final = "pdp.example"
"""Key of the choice of the example in the context of a command."""


def config_options(command: F) -> F:
    """Add `-c`, `--example` and `--set`, which choose the settings."""
    config = click.option(
        "-c",
        "--config",
        type=click.Path(path_type=Path),
        callback=_take_example,
        help="Configuration file. Default: ./pdp.yaml.",
    )
    example = click.option(
        "--example", is_flag=True, is_eager=True, expose_value=False, callback=_note_example,
        help="Take the example configuration in place of a file.",
    )  # fmt: skip
    override = set_option("Override one setting, such as limits.max_checks=50. Can be repeated.")
    return config(example(override(command)))


def set_option(text: str) -> Callable[[F], F]:
    """Add `--set` with a help text, as the argument `overrides`."""
    return click.option(
        "--set", "overrides", multiple=True, metavar="KEY=VALUE", callback=_refuse_replaced, help=text
    )  # fmt: skip


def _refuse_replaced(context: click.Context, _: click.Parameter, overrides: tuple[str, ...]) -> tuple[str, ...]:
    """Return the overrides; raise UsageError if a later one replaces all of an earlier one. Values may be secrets."""
    keys = [override.partition("=")[0] for override in overrides]
    for at, key in enumerate(keys):
        later = next((one for one in keys[at + 1 :] if f"{key}.".startswith(f"{one}.")), None)
        if later is not None:
            message = f"`--set {key}` has no effect before `--set {later}`, which replaces it: leave one of them out"
            raise click.UsageError(message, context)
    return overrides


CONFIG_OPTIONS: Final = ("--config", "--example", "--set")
"""Options that `config_options` adds."""
POLICY_OPTIONS: Final = (*CONFIG_OPTIONS, "--rules", "--world")
"""Options that `policy_options` adds."""


def refuse_beside(chosen: str, useful: Collection[str] = (), *, useless: Collection[str] | None = None) -> None:
    """Raise UsageError for an option of the command line without effect beside `chosen`.

    `useful` are the long names of the options with an effect; or give `useless`, those without.
    """
    context = click.get_current_context()
    for param in context.command.params:
        name = param.opts[-1]
        is_given = context.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
        is_useless = name not in (chosen, *useful) if useless is None else name in useless
        if isinstance(param, click.Option) and is_given and is_useless:
            raise click.UsageError(f"`{name}` has no effect beside `{chosen}`: leave one of them out", context)


def _note_example(context: click.Context, _: click.Parameter, given: bool) -> None:
    context.meta[_EXAMPLE_KEY] = given


def _take_example(context: click.Context, _: click.Parameter, config: Path | None) -> Path | None:
    """Return EXAMPLE for `--example`, else the file; raise UsageError for both."""
    if not context.meta.get(_EXAMPLE_KEY):
        return config
    if config is not None:
        raise click.UsageError("give either -c or --example")
    return EXAMPLE


def policy_options(command: F) -> F:
    """Add `-c`, `--set`, `--rules` and `--world`, which choose the policies and facts."""
    rules = click.option(
        "--rules",
        multiple=True,
        metavar="FILE",
        help="Rule file to use instead of the configured rules. Can be repeated.",
    )
    world = click.option("--world", metavar="FILE", help="World file to use instead of the configured store.")
    return config_options(rules(world(command)))


def format_option(*formats: str) -> Callable[[F], F]:
    """Add `--format` as the argument `form`. The first format is the default."""
    return click.option(
        "--format", "form", type=click.Choice(formats), default=formats[0], show_default=True, help="Output format."
    )


def chosen_settings(
    composition: Wiring, config: Path | None, overrides: Sequence[str], rules: Sequence[str], world: str | None
) -> Settings:
    """Return the settings that the policy options choose.

    Rules or a world replace those of the configuration. Without a configuration they apply to plain default settings.
    """
    if config is EXAMPLE or chosen_file(config) or not (rules or world):
        settings = composition.settings(config, overrides)
    else:
        settings = load_settings(None, overrides).with_policies((), None)
    rule_files = absolute_paths(rules)
    return settings.with_policies(rule_files if rules else None, str(Path(world).absolute()) if world else None)


def say_configuration(settings: Settings) -> None:
    """Say at the end of the command which configuration it took, and if a seed stood in for a missing database."""
    file = settings.origins.file
    note_at_end(f"configuration: {f'`{file.absolute()}`' if file else 'none, so every setting has its default'}")
    database = settings.sqlite_file()
    if settings.store.seed is not None and database is not None and not database.exists():
        note_at_end(f"there is no database at `{database}` yet, this is the seed that it will get")


def absolute_paths(files: Sequence[str]) -> tuple[str, ...]:
    """Return the absolute paths of files, because settings resolve relative paths from the configuration's folder."""
    return tuple(str(Path(file).absolute()) for file in files)
