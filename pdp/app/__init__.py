"""Composition root: the service from concrete classes, and the start and stop of its parts in order.

Only this package names concrete classes, and no other imports it. `main` is the entry point of the command `pdp`.
Rooms:

- `reload`, policies and certificates loaded again while requests run: `reload.reloader`, `reload.published` and
  `reload.load_messages`.
- `sources`, policies from a server of bundles, a registry or a git repository: the loader opens `sources.source`, and
  tells of a state of `sources.client`.
- `workers`, processes of one service: `workers.supervisor`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pdp.app.process import quick_imports
from pdp.cli.ending import end_on_interrupt


class LazyFunction:
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
        from pdp.cli.wiring import Wiring  # noqa: PLC0415  a worker process does without the command line

    run(
        Wiring(
            LazyFunction("pdp.app.run", "embedded_settings"),
            LazyFunction("pdp.app.assembly", "read_rules"),
            LazyFunction("pdp.app.facts", "read_facts"),
            LazyFunction("pdp.app.facts", "build_pdp"),
            LazyFunction("pdp.app.run", "serve"),
            LazyFunction("pdp.app.facts", "writing"),
            LazyFunction("pdp.app.facts", "build_catalogs"),
            LazyFunction("pdp.app.facts", "inspect_facts"),
            LazyFunction("pdp.app.archived_bundle", "rebuild_pdp"),
            LazyFunction("pdp.app.assembly", "read_row_access"),
        )
    )
