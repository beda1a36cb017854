"""What the subcommands share: the composition they are given, their options, and errors on one line."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from pdp.config.settings import Settings, load_settings
from pdp.decision.service import Pdp
from pdp.engines.cel.rules import RuleSet
from pdp.errors import PdpError
from pdp.facts.snapshot import Facts
from pdp.store.writer import Writer
from pdp.views.catalog import IcebergCatalog

F = TypeVar("F", bound=Callable[..., Any])
BAD_INPUT = 2


def _no_catalogs(_: Settings) -> Mapping[str, IcebergCatalog]:
    return {}


@dataclass(frozen=True)
class Composition:
    """What the composition root lends to the command line."""

    embedded_settings: Callable[..., Settings]
    read_rules: Callable[[Settings], tuple[RuleSet, RuleSet]]
    read_facts: Callable[[Settings], Facts]
    build_pdp: Callable[..., Pdp]
    serve: Callable[..., int]
    writing: Callable[..., AbstractContextManager[Writer]]
    build_catalogs: Callable[[Settings], Mapping[str, IcebergCatalog]] = _no_catalogs

    def settings(self, config: Path | None, overrides: Sequence[str] = ()) -> Settings:
        """The given file, or ./pdp.yaml, or the embedded example."""
        file = config or Path("pdp.yaml")
        if config or file.exists():
            return load_settings(file, overrides)
        return self.embedded_settings(tuple(overrides))

    def pdp(self, settings: Settings) -> Pdp:
        """A service in this process, on the files of the settings; it records nothing."""
        return self.build_pdp(settings, self.read_facts(settings), self.read_rules(settings))


def visible(text: str) -> str:
    """Text for a terminal: nothing that could move the cursor or turn the reading direction."""
    return "".join(sign if sign.isprintable() else _escape(sign) for sign in text)


def _escape(sign: str) -> str:
    code = ord(sign)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def fail(message: str) -> NoReturn:
    """End with one line on stderr and the exit code of bad input."""
    click.echo(f"pdp: {visible(message)}", err=True)
    raise SystemExit(BAD_INPUT)


def one_line_errors(command: F) -> F:
    """Errors of ours become one line and exit code 2; others are defects and keep their trace."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except PdpError as error:
            fail(" ".join(str(error).split()))

    return wrapped  # type: ignore[return-value]


def policy_options(command: F) -> F:
    """`-c`, `--set`, `--rules`, `--world`: which policies a command works on."""
    options = (
        click.option("-c", "--config", type=click.Path(path_type=Path), help="Else ./pdp.yaml, else the example."),
        click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting."),
        click.option("--rules", multiple=True, metavar="FILE", help="Rule files in place of the configured ones."),
        click.option("--world", metavar="FILE", help="A world file in place of the configured store."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def chosen_settings(
    composition: Composition, config: Path | None, overrides: Sequence[str], rules: Sequence[str], world: str | None
) -> Settings:
    """The settings that the policy options choose; rules or a world alone stand on plain defaults."""
    if config or not (rules or world):
        settings = composition.settings(config, overrides)
    else:
        settings = load_settings(None, overrides).with_policies((), None)
    given = tuple(str(Path(rule).absolute()) for rule in rules)
    return settings.with_policies(given if rules else None, str(Path(world).absolute()) if world else None)
