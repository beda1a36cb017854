"""Functions of the composition root that the command line calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pdp.errors import ConfigError

if TYPE_CHECKING:  # the help of the commands needs none of these
    from pdp.config.settings import Settings
    from pdp.decision.service import Pdp
    from pdp.engines.cel.rules import RuleSet
    from pdp.engines.row_access.engine import RowAccessEngine
    from pdp.facts.snapshot import Facts
    from pdp.store.writer import Writer
    from pdp.views.catalog import IcebergCatalog


EXAMPLE: Final = Path("--example")
"""Choice of the example in place of a configuration file."""
DEFAULT_FILE: Final = Path("pdp.yaml")
"""Configuration file of a command without `-c`, in the working folder."""


def _no_archives(_: bytes) -> Pdp:
    raise ConfigError("archived bundles cannot be used here")


def _no_catalogs(_: Settings) -> Mapping[str, IcebergCatalog]:
    return {}


def _no_row_access(_: Settings) -> RowAccessEngine:
    raise ConfigError("row policies cannot be written here")


@dataclass(frozen=True)
class Wiring:
    """Constructors of the product's parts, injected so that no command names a concrete class."""

    embedded_settings: Callable[..., Settings]
    read_rules: Callable[[Settings], tuple[RuleSet, RuleSet]]
    read_facts: Callable[[Settings], Facts]
    build_pdp: Callable[..., Pdp]
    serve: Callable[..., int]
    writing: Callable[..., AbstractContextManager[Writer]]
    build_catalogs: Callable[[Settings], Mapping[str, IcebergCatalog]] = _no_catalogs
    inspect_facts: Callable[[Settings], Facts] | None = None
    """As `read_facts`, without any change of the store."""
    rebuild_pdp: Callable[[bytes], Pdp] = _no_archives
    """Makes a service without facts from the text of an archived bundle."""

    row_access: Callable[[Settings], RowAccessEngine] = _no_row_access
    """Row policies and masks of the configured files."""

    def settings(self, config: Path | None, overrides: Sequence[str] = ()) -> Settings:
        """Return the settings of the file or of EXAMPLE, else of ./pdp.yaml; raise ConfigError without any."""
        from pdp.config.load import load_settings  # noqa: PLC0415  half of the time of `pdp --help`

        if config is EXAMPLE:
            return self.embedded_settings(tuple(overrides))
        file = chosen_file(config)
        if file is None:
            raise ConfigError(
                "there is no configuration: write `pdp.yaml` here, give a file with -c, or take the example policies "
                "with --example"
            )
        return load_settings(file, overrides)

    def pdp(self, settings: Settings) -> Pdp:
        """Build a service in this process that records nothing."""
        return self.build_pdp(settings, self.read_facts(settings), self.read_rules(settings))


def chosen_file(config: Path | None) -> Path | None:
    """Return the file of `-c`, else ./pdp.yaml; None without both."""
    if config is None and DEFAULT_FILE.exists():
        return DEFAULT_FILE
    return config
