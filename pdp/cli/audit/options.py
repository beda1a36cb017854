"""Options of the commands of `pdp audit`: the folder, and the choice of records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from pdp.audit.records.recorded import ReadReport
from pdp.audit.records.schema import RECORD_EVENTS
from pdp.audit.selection import RecordSelection
from pdp.cli.dry_run.checks import parse_time
from pdp.cli.options import config_options, say_configuration
from pdp.cli.terminal import plural
from pdp.cli.wiring import Wiring
from pdp.config.settings import Settings
from pdp.errors import InvalidArgument

F = TypeVar("F", bound=Callable[..., Any])
_TEXTS: Final = {
    "--principal": "Only checks of this principal; `*` stands for any text.",
    "--resource": "Only checks of this object, such as table:lake/sales/*.",
    "--action": "Only checks of this action, or this operation of management.",
    "--surface": "Only requests over this surface, such as http or trino.",
    "--caller": "Only requests of this caller.",
    "--id": "Only the record with this id (X-Decision-ID).",
    "--request-id": "Only requests with this id (X-Request-ID).",
    "--trace-id": "Only requests of this trace (traceparent).",
    "--query-id": "Only requests of this query of an engine.",
    "--instance": "Only records of this start of a service.",
}
"""Option -> its help."""


def folder_options(command: F) -> F:
    """Add `-c`, `--example`, `--set` and `--audit`, which choose the folder."""
    folder = click.option(
        "--audit", type=click.Path(path_type=Path), help="Audit folder, in place of the configured one."
    )
    return config_options(folder(command))


def selection_options(command: F) -> F:
    """Add the options that choose records."""
    command = click.option("--until", metavar="TIME", help="Only records before this time.")(command)
    command = click.option(
        "--since", metavar="TIME", help="Only records from this time on, such as 2026-01-31T12:00Z."
    )(command)
    kinds = click.Choice(sorted(RECORD_EVENTS))
    command = click.option("--event", type=kinds, help="Only records of this kind.")(command)
    command = click.option("--denied", is_flag=True, help="Only denials and refusals.")(command)
    for name, text in reversed(_TEXTS.items()):
        command = click.option(name, default="", metavar="TEXT", help=text)(command)
    return command


def read_selection(values: dict[str, Any]) -> RecordSelection:
    """Take the options that choose records out of the values of a command; return the choice."""
    fields: dict[str, Any] = {
        name: values.pop(name) or "" for name in RecordSelection.__struct_fields__ if name != "denied"
    }
    fields["denied"] = values.pop("denied")
    fields["since"] = parse_time(fields["since"], "--since")
    fields["until"] = parse_time(fields["until"], "--until")
    return RecordSelection(**fields)


class AuditPlace:
    """Folder that a command reads. `settings` are None for a folder that `--audit` names without a configuration."""

    def __init__(
        self, composition: Wiring, config: Path | None, overrides: tuple[str, ...], audit: Path | None
    ) -> None:
        self.settings: Settings | None = None
        if audit is None or config is not None or overrides:
            self.settings = composition.settings(config, overrides)
            say_configuration(self.settings)
        self.folder = audit or self._configured()
        if not self.folder.is_dir():
            raise InvalidArgument(f"there is no audit folder `{self.folder}`")

    def _configured(self) -> Path:
        assert self.settings
        for sink in self.settings.audit.sinks:
            if folder := sink.file:
                return self.settings.path(folder)
        raise InvalidArgument("the configuration has no audit folder (audit.sinks): give one with --audit")


def skipped_texts(report: ReadReport) -> Iterator[str]:
    """Yield a line for each kind of lines that were skipped."""
    for why, count in sorted(report.skipped.items()):
        yield f"skipped {plural(count, 'line')}: {why}, first at {report.first[why]}"
