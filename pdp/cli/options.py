"""Options of several commands, and the settings chosen by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from pdp.cli.composition import Composition
from pdp.config.load import load_settings
from pdp.config.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])


def config_options(command: F) -> F:
    """Add `-c` and `--set`, which choose the settings."""
    config = click.option(
        "-c",
        "--config",
        type=click.Path(path_type=Path),
        help="Configuration file. Default: ./pdp.yaml if it exists, else the embedded example.",
    )
    override = click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        help="Override one setting, such as limits.max_checks=50. Can be repeated.",
    )
    return config(override(command))


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
    composition: Composition, config: Path | None, overrides: Sequence[str], rules: Sequence[str], world: str | None
) -> Settings:
    """Return the settings that the policy options choose.

    Rules or a world without a configuration file apply to plain default settings, not to ./pdp.yaml.
    """
    if config or not (rules or world):
        settings = composition.settings(config, overrides)
    else:
        settings = load_settings(None, overrides).with_policies((), None)
    rule_files = absolute_paths(rules)
    return settings.with_policies(rule_files if rules else None, str(Path(world).absolute()) if world else None)


def absolute_paths(files: Sequence[str]) -> tuple[str, ...]:
    """Return the absolute paths of files, because settings resolve relative paths from the configuration's folder."""
    return tuple(str(Path(file).absolute()) for file in files)
