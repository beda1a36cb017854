"""Store and actor of the subcommands of `pdp grants`."""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from pathlib import Path

from pdp.cli.options import say_configuration
from pdp.cli.terminal import note_at_end
from pdp.cli.wiring import Wiring
from pdp.config.settings import Settings
from pdp.engines.grants.edits import Actor
from pdp.errors import InvalidArgument
from pdp.facts.snapshot import Facts


def writable_settings(composition: Wiring, config: Path | None, overrides: Sequence[str]) -> Settings:
    """Return the settings; raise InvalidArgument if their store is a world file."""
    settings = composition.settings(config, overrides)
    say_configuration(settings)
    file = settings.store.world_file()
    if file is not None:
        raise InvalidArgument(
            f"the store is the world file `{file}`, which takes no writes: edit it, or set `store.url` to a database"
        )
    return settings


def readable_settings(composition: Wiring, config: Path | None, overrides: Sequence[str]) -> Settings:
    """Return the settings of a command that only reads the store."""
    settings = composition.settings(config, overrides)
    say_configuration(settings)
    return settings


def read_store(composition: Wiring, settings: Settings) -> Facts:
    """Return the facts of the store. Say at the end of the command if there is no database yet."""
    _note_missing(settings)
    return composition.read_facts(settings)


def inspect_store(composition: Wiring, settings: Settings) -> Facts:
    """Return the facts as `read_store` does, and change nothing in the store."""
    _note_missing(settings)
    return (composition.inspect_facts or composition.read_facts)(settings)


def _note_missing(settings: Settings) -> None:
    file = settings.sqlite_file()
    if settings.store.seed is None and file is not None and not file.exists():
        note_at_end(f"there is no database at `{file}` yet")


def actor() -> Actor:
    """Return the actor of this command: an operator, named after the account of this process."""
    uid = os.getuid()
    try:
        return Actor(f"cli:{pwd.getpwuid(uid).pw_name}")
    except KeyError:  # the account has no name, as in some containers
        return Actor(f"cli:{uid}")
