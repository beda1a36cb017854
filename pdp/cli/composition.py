"""Functions of the composition root that the command line calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the help of the commands needs none of these
    from pdp.config.settings import Settings
    from pdp.decision.service import Pdp
    from pdp.engines.cel.rules import RuleSet
    from pdp.facts.snapshot import Facts
    from pdp.store.writer import Writer
    from pdp.views.catalog import IcebergCatalog


def _no_catalogs(_: Settings) -> Mapping[str, IcebergCatalog]:
    return {}


@dataclass(frozen=True)
class Composition:
    """Constructors of the product's parts, injected so that no command names a concrete class."""

    embedded_settings: Callable[..., Settings]
    read_rules: Callable[[Settings], tuple[RuleSet, RuleSet]]
    read_facts: Callable[[Settings], Facts]
    build_pdp: Callable[..., Pdp]
    serve: Callable[..., int]
    writing: Callable[..., AbstractContextManager[Writer]]
    build_catalogs: Callable[[Settings], Mapping[str, IcebergCatalog]] = _no_catalogs

    def settings(self, config: Path | None, overrides: Sequence[str] = ()) -> Settings:
        """Return the settings of the file, else of ./pdp.yaml, else of the embedded example."""
        from pdp.config.load import load_settings  # noqa: PLC0415  half of the time of `pdp --help`

        file = config or Path("pdp.yaml")
        if config or file.exists():
            return load_settings(file, overrides)
        return self.embedded_settings(tuple(overrides))

    def pdp(self, settings: Settings) -> Pdp:
        """Build a service in this process that records nothing."""
        return self.build_pdp(settings, self.read_facts(settings), self.read_rules(settings))
