"""`pdp dry-run`: two sets of policies on the same checks, and what changes from one to the other."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final, Self

import click
import msgspec
import yaml
from rich.console import Console

from pdp.audit.encoding import timestamp
from pdp.audit.reader import read_audit, read_bundle
from pdp.audit.recorded import ReadReport, RecordedCheck, RecordFilter
from pdp.audit.schema import ArchivedBundle
from pdp.cli.context import Composition, one_line_errors
from pdp.cli.difference_report import Report, as_json, print_text
from pdp.config.settings import LATER, Settings, load_settings
from pdp.decision.codec import decode_checks
from pdp.decision.service import Pdp
from pdp.engines.cel.engine import CelEngine
from pdp.errors import InvalidArgument
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.identity.evidence import admit
from pdp.offline.replay import Differences, replay

DIFFERENT: Final = 3
AT_ONCE: Final = 1000
"""Lines that are parsed together."""
_WORLD: Final = frozenset({"objects", "grants", "seen"})
_SETTINGS: Final = frozenset(Settings.model_fields) | {key.partition(".")[0] for key in LATER}


class _ManyValues(click.Command):
    """An option that names files takes all that follow it, as a shell's `*` gives them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = {name for param in self.params if param.multiple for name in param.opts if name != "--set"}
        spread: list[str] = []
        current = ""
        for arg in args:
            if arg.startswith("-") and arg != "-":
                current = arg if arg in options else ""
            elif current and spread[-1] != current:
                spread.append(current)
            spread.append(arg)
        return super().parse_args(ctx, spread)


@click.command("dry-run", cls=_ManyValues)
@click.option("--baseline", multiple=True, metavar="FILE...", help="Policies as they are: rules, a world, a pdp.yaml.")
@click.option("--candidate", multiple=True, metavar="FILE...", help="Policies as they would be.")
@click.option("--forbid-baseline", multiple=True, metavar="FILE...", help="Rule files that forbid, as they are.")
@click.option("--forbid-candidate", multiple=True, metavar="FILE...", help="Rule files that forbid, as they would be.")
@click.option("-c", "--config", type=click.Path(path_type=Path), help="Settings that both share, such as warehouses.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting of both.")
@click.option("--checks", metavar="FILE", help="Checks, one JSON object a line as for `pdp check`; - is stdin.")
@click.option("--audit", type=click.Path(path_type=Path), help="A folder of audit records.")
@click.option("--since", metavar="TIME", help="Records from this time on, such as 2026-01-31T12:00Z.")
@click.option("--until", metavar="TIME", help="Records before this time.")
@click.option("--principal", default="", help="Records about this principal alone.")
@click.option("--listings", is_flag=True, help="Also what listings asked: /v1/list and /v1/access.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_obj
@one_line_errors
def dry_run(
    composition: Composition, baseline: tuple[str, ...], candidate: tuple[str, ...], forbid_baseline: tuple[str, ...],
    forbid_candidate: tuple[str, ...], config: Path | None, overrides: tuple[str, ...], checks: str | None,
    audit: Path | None, since: str | None, until: str | None, principal: str, listings: bool, form: str,
) -> None:  # fmt: skip
    """Decide checks under two sets of policies and say who gains and who loses.

    The checks are lines of a file, or what an audit folder recorded. Without --baseline, an audit is compared with
    what was decided then, and a file of checks with the policies of --config. Files are told apart by suffix and
    top-level key: rules (.properties, or .yaml with `rules`), a world (.json, or .yaml with `objects` or `grants`),
    settings (a pdp.yaml).

    Exits with 3 when something changes, 0 when nothing does.
    """
    if (checks is None) == (audit is None):
        raise InvalidArgument("give either --checks or --audit")
    as_is = bool(baseline or forbid_baseline or (config and checks))
    if not as_is and audit is None:
        raise InvalidArgument("--checks needs a --baseline or --config: nothing was decided about them yet")
    if not (candidate or forbid_candidate):
        raise InvalidArgument("give a --candidate: the policies as they would be")
    if audit is None and (since or until or principal or listings):
        raise InvalidArgument("--since, --until, --principal and --listings choose records of --audit")
    old = composition.pdp(_side(config, overrides, baseline, forbid_baseline)) if as_is else None
    new = composition.pdp(_side(config, overrides, candidate, forbid_candidate))
    reading = ReadReport()
    wanted = RecordFilter(_time(since, "--since"), _time(until, "--until"), principal, listings)
    recorded = _lines(checks or "-", reading) if audit is None else read_audit(audit, reading, wanted)
    with _Progress() as progress:
        found = asyncio.run(replay(recorded, old, new, progress.show))
    if reading.skipped and not found.checks:
        why, place = next(iter(reading.first.items()))
        raise InvalidArgument(f"nothing could be compared: {why}, first at {place}")
    then = _implicit(old) if old else _implicit_then(audit, reading.bundles)
    report = Report(found, reading, then, _implicit(new), _notes(old, new))
    if form == "json":
        sys.stdout.buffer.write(msgspec.json.encode(as_json(report)) + b"\n")
    else:
        print_text(report)
    raise SystemExit(DIFFERENT if found else 0)


# --- policies -----------------------------------------------------------------------------------------------------


def _side(config: Path | None, overrides: Sequence[str], files: Sequence[str], forbid: Sequence[str]) -> Settings:
    """The settings of one side: its own pdp.yaml or the shared one, with its rules and world in place of theirs."""
    kinds: dict[str, list[str]] = {"rules": [], "world": [], "settings": []}
    for file in files:
        kinds[_kind(Path(file))].append(str(Path(file).absolute()))
    for kind in ("world", "settings"):
        if len(kinds[kind]) > 1:
            raise InvalidArgument(f"`{kinds[kind][1]}` is a second {kind} file: one side takes one")
    own = Path(kinds["settings"][0]) if kinds["settings"] else config
    settings = load_settings(own, overrides) if own else load_settings(None, overrides).with_policies((), None)
    settings = settings.with_policies(kinds["rules"] or None, kinds["world"][0] if kinds["world"] else None)
    if not forbid:
        return settings
    forbidding = tuple(str(Path(file).absolute()) for file in forbid)
    return settings.model_copy(update={"policies": settings.policies.model_copy(update={"forbid": forbidding})})


def _kind(file: Path) -> str:
    """What a file holds: `rules`, `world` or `settings`."""
    if file.suffix in (".properties", ".json"):
        return "rules" if file.suffix == ".properties" else "world"
    if file.suffix not in (".yaml", ".yml"):
        raise InvalidArgument(f"`{file}` is neither rules, a world nor settings: it ends in none of {_SUFFIXES}")
    key = _first_key(file)
    if key in ("rules", ""):
        return "rules"
    if key in _WORLD:
        return "world"
    if key in _SETTINGS:
        return "settings"
    raise InvalidArgument(f"`{file}` is neither rules, a world nor settings: it begins with the key `{key}`")


_SUFFIXES: Final = ".properties, .yaml, .yml, .json"


def _first_key(file: Path) -> str:
    """The first top-level key; empty where there is none."""
    try:
        with file.open(encoding="utf-8") as text:
            events = list(itertools.islice(yaml.parse(text, yaml.CSafeLoader), 4))
    except OSError as error:
        raise InvalidArgument(f"cannot read `{file}`: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"`{file}` is not YAML: {error}") from None
    mapping = len(events) == 4 and isinstance(events[2], yaml.MappingStartEvent)
    return str(getattr(events[3], "value", "")) if mapping else ""


def _notes(old: Pdp | None, new: Pdp) -> list[str]:
    """What the policies of either side warn of."""
    sides = [("baseline", old), ("candidate", new)]
    return [f"{name}: {warning}" for name, pdp in sides if pdp for warning in pdp.bundle.warnings]


def _implicit(pdp: Pdp) -> bool:
    """Whether Nessie's implicit rule, that everyone may view references, is in force."""
    authorities = (pdp.bundle.default, *pdp.bundle.authorities.values())
    return any(
        isinstance(engine, CelEngine) and engine.has_implicit_rule
        for authority in authorities
        for engine in authority.engines
    )


def _implicit_then(folder: Path | None, digests: set[str]) -> bool | None:
    """The same of the bundles that decided then; None where they are not kept, or not of one kind."""
    bundles = [read_bundle(folder, digest) for digest in digests] if folder else []
    found = {_is_implicit(bundle) if bundle else None for bundle in bundles}
    return found.pop() if len(found) == 1 else None


def _is_implicit(bundle: ArchivedBundle) -> bool:
    engines = {engine for authority in bundle.authorities.values() for engine in authority.engines}
    return "cel" in engines and not any("VIEW_REFERENCE" in text for text in bundle.rules.values())


# --- checks -------------------------------------------------------------------------------------------------------


def _lines(file: str, reading: ReadReport) -> Iterator[RecordedCheck]:
    """The checks of a file or of stdin; InvalidArgument names the line that is none."""
    if file == "-":
        yield from _parsed(sys.stdin.buffer, "<stdin>", reading)
        return
    try:
        with Path(file).open("rb") as stream:
            yield from _parsed(stream, file, reading)
    except OSError as error:
        raise InvalidArgument(f"cannot read `{file}`: {error.strerror}") from None


def _parsed(stream: BinaryIO, name: str, reading: ReadReport) -> Iterator[RecordedCheck]:
    numbered = ((number, line) for number, line in enumerate(stream, 1) if line.strip())
    while some := list(itertools.islice(numbered, AT_ONCE)):
        request = decode_checks((line for _, line in some), unique_keys=True).request("cli")
        batch = admit(request, EMBEDDED_CALLER)
        for at, rejected in sorted(batch.rejected.items()):
            raise InvalidArgument(f"{name}:{some[at][0]}: {rejected.message}")
        reading.checks += len(some)
        for check in batch.checks:
            for resource in check.resources:
                key = msgspec.json.encode(resource, order="sorted").decode()
                yield RecordedCheck(msgspec.structs.replace(check, resources=(resource,), at=(0,), query_id=""), key)


def _time(text: str | None, option: str) -> str:
    """A time as records write it; without a zone it is UTC."""
    if not text:
        return ""
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(f"`{option} {text}` is no time such as 2026-01-31T12:00Z") from None
    return timestamp((given if given.tzinfo else given.replace(tzinfo=UTC)).timestamp())


class _Progress:
    """How far it is, on a terminal alone."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._status = self._console.status("reading") if self._console.is_terminal else None

    def __enter__(self) -> Self:
        if self._status:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status:
            self._status.stop()

    @property
    def show(self) -> Callable[[Differences], None]:
        """Show what has been compared so far."""
        status = self._status
        if not status:
            return lambda _: None
        return lambda found: status.update(f"{found.checks:,} checks, {found.totals.total():,} different")
