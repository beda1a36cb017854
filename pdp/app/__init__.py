"""Composition root: the service from concrete classes, and the start and stop of its parts in order.

Only this package and `assembly` name concrete classes. `main` is the entry point of the command `pdp`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pdp.app.process import quick_imports
from pdp.cli.ending import end_on_interrupt


class LateFunction:
    """Function that is imported when it is called: no command needs all of them. Executors of Spark get it by name."""

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        with quick_imports():
            function = getattr(import_module(self._module), self._name)
        return function(*args, **keywords)


def main() -> None:
    """Run the `pdp` command."""
    end_on_interrupt()
    with quick_imports():
        from pdp.cli.main import run  # noqa: PLC0415
        from pdp.cli.wiring import Composition  # noqa: PLC0415  a worker process does without the command line

    run(
        Composition(
            LateFunction("pdp.app.run", "embedded_settings"),
            LateFunction("pdp.app.assembly", "read_rules"),
            LateFunction("pdp.app.facts", "read_facts"),
            LateFunction("pdp.app.facts", "build_pdp"),
            LateFunction("pdp.app.run", "serve"),
            LateFunction("pdp.app.facts", "writing"),
            LateFunction("pdp.app.facts", "build_catalogs"),
            LateFunction("pdp.app.facts", "inspect_facts"),
            LateFunction("pdp.app.archived_bundle", "rebuild_pdp"),
            LateFunction("pdp.app.assembly", "read_row_access"),
        )
    )
