"""Composition root: the service from concrete classes, and the start and stop of its parts in order.

Only this package and `assembly` name concrete classes. `main` is the entry point of the command `pdp`.
"""

from __future__ import annotations


def main() -> None:
    """Run the `pdp` command."""
    from pdp.app.parts import build_catalogs, build_pdp, embedded_settings, read_facts, writing  # noqa: PLC0415
    from pdp.app.run import serve  # noqa: PLC0415  a worker process does without the command line
    from pdp.assembly import read_rules  # noqa: PLC0415
    from pdp.cli.composition import Composition  # noqa: PLC0415
    from pdp.cli.main import run  # noqa: PLC0415

    run(Composition(embedded_settings, read_rules, read_facts, build_pdp, serve, writing, build_catalogs))
