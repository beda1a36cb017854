"""`pdp config`: check a configuration with all that it names, and print every value with its origin."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from pdp.cli.config.problems import ConfigProblem, find_problems, problems_of
from pdp.cli.options import config_options, format_option, say_configuration
from pdp.cli.terminal import one_line_errors, plural, visible
from pdp.cli.wiring import Wiring
from pdp.config.origins import Key, key_text
from pdp.config.section import names_secret
from pdp.config.settings import Settings, is_hidden
from pdp.errors import ConfigError

_MASK: Final = "***"
_PASSWORD: Final = re.compile(r"(://[^/@:\s]*:)\S*(?=@)|(https?://)[^/@:?#\s]+(?=@)", re.IGNORECASE)
"""Password in an address: between user and host, or in place of the user."""
_ASSIGNED: Final = re.compile(
    r"""(?P<name>[\w.-]+)(?P<sign>\s*=\s*|["']?\s*:(?!//)\s*)(?P<value>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^;&]+)"""
)
"""Value of a name inside a text: a parameter of an address, `a=b;c=d`, `a: b`, or JSON."""
_BEARER: Final = re.compile(r"\b((?:Bearer|Basic)\s+)\S+", re.IGNORECASE)


@click.group()
def config() -> None:
    """Check the configuration of the service."""


@config.command()
@config_options
@click.option("--effective", is_flag=True, help="Print each value and its origin. Passwords are masked.")
@format_option("text", "json")
@click.pass_obj
@one_line_errors
def check(composition: Wiring, config: Path | None, overrides: tuple[str, ...], effective: bool, form: str) -> None:
    """Load all that a configuration names, as the start of the service would.

    Settings, rules, forbids, row policies, the world or the database (read only), certificates, keys, catalogs. Binds
    no address and writes nothing. Prints every error with file, line and column, and exits with 1 if there is one.
    """
    try:
        settings = composition.settings(config, overrides)
    except ConfigError as error:
        _print_problems(problems_of(error), form)
        raise SystemExit(1) from None
    say_configuration(settings)
    problems = list(find_problems(composition, settings))
    if effective:
        _print_values(settings, form)
    _print_problems(problems, "text" if effective else form)
    raise SystemExit(1 if any(problem.severity == "error" for problem in problems) else 0)


def _print_problems(problems: list[ConfigProblem], form: str) -> None:
    if form == "json":
        sys.stdout.buffer.write(msgspec.json.encode(problems) + b"\n")
        return
    for problem in problems:
        click.echo(visible(problem.text()))
    errors = sum(problem.severity == "error" for problem in problems)
    warnings = sum(problem.severity == "warning" for problem in problems)
    click.echo(f"{plural(errors, 'error')}, {plural(warnings, 'warning')}")


def _print_values(settings: Settings, form: str) -> None:
    values = [
        (key, shown(key, value), settings.origins.of(key) or "default") for key, value in effective_values(settings)
    ]
    if form == "json":
        entries = [{"key": key_text(key), "value": value, "origin": origin} for key, value, origin in values]
        sys.stdout.buffer.write(msgspec.json.encode(entries) + b"\n")
        return
    for key, value, origin in values:
        click.echo(visible(f"{key_text(key)}: {msgspec.json.encode(value).decode()}  # {origin}"))


def effective_values(settings: Settings) -> Iterator[tuple[Key, Any]]:
    """Yield each key that holds no section, with its value."""
    yield from _leaves((), settings.model_dump(mode="json"))


def _leaves(key: Key, value: Any) -> Iterator[tuple[Key, Any]]:
    if isinstance(value, Mapping) and value:
        for name, below in value.items():
            yield from _leaves((*key, name), below)
    else:
        yield key, value


def shown(key: Key, value: Any) -> Any:
    """Return a value without secrets, at every depth."""
    if value and is_hidden(key):
        return _MASK
    if isinstance(value, Mapping):
        return {name: shown((*key, name), below) for name, below in value.items()}
    if isinstance(value, list | tuple):
        return [shown((*key, at), below) for at, below in enumerate(value)]
    return masked(value)


def masked(value: Any) -> Any:
    """Return a value without passwords inside the text of an address or of assignments."""
    if not isinstance(value, str):
        return value
    return _ASSIGNED.sub(_masked_value, _PASSWORD.sub(_masked_user, _BEARER.sub(rf"\1{_MASK}", value)))


def _masked_user(match: re.Match[str]) -> str:
    return f"{match[1] or match[2]}{_MASK}"


def _masked_value(match: re.Match[str]) -> str:
    name, sign, value = match.groups()
    return f"{name}{sign}{_MASK if names_secret(name) else _ASSIGNED.sub(_masked_value, value)}"
