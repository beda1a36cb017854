"""Composition root: the service from concrete classes, and the start and stop of its parts in order.

Only this package and `assembly` name concrete classes. `main` is the entry point of the command `pdp`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from pdp.app.quick_imports import quick_imports
from pdp.cli.ending import end_on_interrupt


def main() -> None:
    """Run the `pdp` command."""
    end_on_interrupt()
    with quick_imports():
        from pdp.cli.composition import Composition  # noqa: PLC0415  a worker process does without the command line
        from pdp.cli.main import run  # noqa: PLC0415

    run(
        Composition(
            _late("pdp.app.example", "embedded_settings"),
            _late("pdp.assembly", "read_rules"),
            _late("pdp.app.parts", "read_facts"),
            _late("pdp.app.parts", "build_pdp"),
            _late("pdp.app.run", "serve"),
            _late("pdp.app.parts", "writing"),
            _late("pdp.app.parts", "build_catalogs"),
            _late("pdp.app.parts", "inspect_facts"),
            _late("pdp.app.archived_bundle", "rebuild_pdp"),
        )
    )


def _late(module: str, name: str) -> Callable[..., Any]:
    """Return a function that is imported when it is called: no command needs all of them."""

    def call(*args: Any, **keywords: Any) -> Any:
        with quick_imports():
            function = getattr(import_module(module), name)
        return function(*args, **keywords)

    return call
