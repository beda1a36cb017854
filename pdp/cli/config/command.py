"""`pdp config`: check a configuration with all that it names, and print every value with its origin."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import click
import msgspec

from pdp.cli.config.problems import ConfigProblem, find_problems, problems_of
from pdp.cli.options import config_options, format_option, say_configuration
from pdp.cli.terminal import one_line_errors, plural, visible
from pdp.cli.wiring import Wiring
from pdp.config.origins import Key, key_text
from pdp.config.section import names_secret
from pdp.config.settings import Settings, is_free, is_hidden
from pdp.errors import ConfigError

_MASK: Final = "***"
_PASSWORD: Final = re.compile(r"(?!(?<=sqlite):///)(://).*(?=@)", re.IGNORECASE | re.DOTALL)
"""User and password in an address, whatever their characters. The address of an SQLite file has neither."""
_PARAMETER: Final = re.compile(r"(?P<name>(?<=[?&])[^?&=]*)(?P<sign>=)(?P<value>[^&]*)")
_QUERY: Final = re.compile(r"(https?://[^?]*\?)(.+)", re.IGNORECASE | re.DOTALL)
"""Query of a receiver, a source or a key set: each service has its own name of a key in it."""
_FRAGMENT: Final = re.compile(r"(://[^\s#@]*#)[^\s@]+$")
_ASSIGNED: Final = re.compile(
    r"""(?P<name>[\w.-]+)(?P<sign>\s*=\s*|["']?\s*:(?!//)\s*)(?P<value>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^;&]+)"""
)
"""Value of a name inside a text: a parameter of an address, `a=b;c=d`, `a: b`, or JSON."""
_BEARER: Final = re.compile(r"\b((?:Bearer|Basic|Digest|Negotiate|ApiKey|Token)\s+)\S+", re.IGNORECASE)
_BLOCK: Final = re.compile(r"(-----BEGIN [A-Z0-9 ]*-----).*?(?:-----END [A-Z0-9 ]*-----|\Z)", re.DOTALL)
"""Block of PEM, or the beginning of such a block."""
_SHAPED: Final = re.compile(
    r"""\beyJ[\w-]*(?:\.[\w-]*)*                                   # a token of JSON, signed or encrypted
    |\b(?:AKIA|ASIA|AIza|gh[opsru]_|github_pat_|glpat-|xox[a-z]-|sk[-_]|pk_live_|hv[sbr]\.|dckr_pat_|npm_|dapi|ya29\.)[\w.-]+
    |(?<=hooks\.slack\.com/services/)\S+|(?<=/webhooks/)\S+|(?<=/hooks/)\S+""",
    re.VERBOSE,
)
"""Text with the shape of a secret, whatever its name."""
_RANDOM: Final = re.compile(
    r"(?<![\w+=~-])(?=[\w+=~-]*\d)(?=[\w+=~-]*[a-z])(?=[\w+=~-]*[A-Z])[\w+=~-]{24,}|\b[0-9a-f]{32,}\b"
)
"""Long text of letters of both cases and digits, or of hexadecimal digits, as generators of keys make."""
_QUOTED: Final = r""" "(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*' """.strip()
_TAG: Final = re.compile(r"(<(?P<name>[\w.-]+)>)[^<]*")
_OPTION: Final = re.compile(
    rf"(?P<name>(?<![\w-])--?[\w.-]+|\b[\w.-]+)(?P<space>\s+(?:is\s+)?)(?P<value>{_QUOTED}|\S+)(?=\s|$)"
)
"""Option of a command with a value, or a word before another."""
_SHORT: Final = re.compile(rf"(?<![\w-])(-[puaUPk]\s*)(?:{_QUOTED}|\S+)")
"""Option of one letter, with which commands take a user, a password or a key."""
_SLASHED: Final = re.compile(r"(\b[\w.-]+/)[^\s/@]+(?=@)")
"""Password behind a user, as Oracle writes both."""


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


_SECRET_FILE: Final = re.compile(r".*\.(?:headers|\w*(?:token|key|password|secret))_file|server\.tls\.key")
"""Key of a file with a secret: who knows the path knows what to look for."""


def shown(key: Key, value: Any) -> Any:
    """Return a value without secrets, at every depth."""
    if value and (is_hidden(key) or _SECRET_FILE.fullmatch(key_text(key))):
        return _MASK
    if isinstance(value, Mapping):
        return {name: shown((*key, name), below) for name, below in value.items()}
    if isinstance(value, list | tuple):
        return [shown((*key, at), below) for at, below in enumerate(value)]
    return masked(value, free=is_free(key))


def masked(value: Any, *, free: bool = False) -> Any:
    """Return a value without secrets inside: of addresses, assignments and options, and texts shaped like secrets.

    `free`: the value is of a key unknown to all sections, so that in doubt a text is a secret.
    """
    if not isinstance(value, str):
        return value
    text = _PARAMETER.sub(_masked_value, value) if free else _QUERY.sub(_hidden, _PARAMETER.sub(_masked_value, value))
    for pattern in (_FRAGMENT, _BLOCK, _BEARER, _SHAPED):
        text = pattern.sub(_hidden, text)
    text = _PASSWORD.sub(rf"\1{_MASK}", _ASSIGNED.sub(_masked_value, text))
    if not free:
        return text
    text = _SLASHED.sub(_hidden, _SHORT.sub(_hidden, _options_masked(text)))
    text = _TAG.sub(lambda match: f"{match[1]}{_MASK}" if names_secret(match["name"]) else match[0], text)
    return _RANDOM.sub(_MASK, text)


def _options_masked(text: str) -> str:
    """Return a text without the words behind names of secrets."""
    at = 0
    while found := _OPTION.search(text, at):
        at = found.start("value")
        if names_secret(found["name"]) and not found["name"].startswith(_MASK):
            text = f"{text[:at]}{_MASK}{text[found.end('value') :]}"
    return text


def _hidden(match: re.Match[str]) -> str:
    """Return the first group, if any, and a mask of the rest."""
    first: str = match[1] if match.re.groups else ""
    return first + _mask_of(match[0].removeprefix(first))


def _mask_of(secret: str) -> str:
    """Return the mask of a text. Each `@` stays: a later pattern needs the last one of an address."""
    return "@".join(_MASK if part else "" for part in secret.split("@"))


def _masked_value(match: re.Match[str]) -> str:
    name, sign, value = match.groups()
    if names_secret(unquote(name)):
        return f"{name}{sign}{_mask_of(value)}"
    return f"{name}{sign}{_ASSIGNED.sub(_masked_value, value)}"
