"""Report of a replay, as text and as lines of JSON. The last line of JSON has the totals."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import msgspec
from rich.console import Console
from rich.text import Text

from pdp.cli.terminal import plural, visible

if TYPE_CHECKING:
    from pdp.lake.replay.replaying import ReplayResult

_TITLES: Final[Mapping[str, tuple[str, str]]] = {
    "gained": ("gains access", "green"),
    "lost": ("loses access", "red"),
    "reason": ("same verdict by another reason", "yellow"),
    "errors": ("same verdict, other rules raise", "yellow"),
}
"""Kind -> title and color."""
_JSON_FIELDS: Final = ("decided", "same", "gained", "lost", "undecidable", "reason", "errors")


def print_json(result: ReplayResult) -> None:
    """Print one line for each listed row, and one with the totals."""
    for rows in result.rows.values():
        for row in rows:
            shown = {name: value for name, value in row.items() if value not in (None, "", [], False)}
            sys.stdout.buffer.write(msgspec.json.encode(shown) + b"\n")
    totals = {name: getattr(result.totals, name) for name in _JSON_FIELDS}
    sys.stdout.buffer.write(msgspec.json.encode({**totals, "run": result.run}) + b"\n")


def print_text(result: ReplayResult) -> None:
    """Print the report on stdout."""
    console = Console(highlight=False, soft_wrap=True)
    for line in _text(result):
        console.print(line)


def _text(result: ReplayResult) -> Iterator[Text]:
    yield from _undecidable(result)
    totals = result.totals
    changed = [f"{getattr(totals, kind):,} {kind}" for kind in _TITLES if getattr(totals, kind)]
    checks = plural(totals.decided, "check")
    headline = f"{', '.join(changed)} of {checks}" if changed else f"no difference in {checks}"
    yield Text(headline, "bold")
    for kind, (title, style) in _TITLES.items():
        rows = result.rows.get(kind, ())
        if rows:
            yield Text()
            yield Text(f"{title}: {plural(getattr(totals, kind), 'check')}", f"bold {style}")
            yield from _differences([row for row in rows if row["event"] != "filter"])
            yield from _views([row for row in rows if row["event"] == "filter"])
            yield from _more(result, kind)
    yield Text(f"all rows: table replay_differences, run {result.run}", "dim")


def _undecidable(result: ReplayResult) -> Iterator[Text]:
    """Yield the causes of undecided checks: they come first, because the rest says nothing about these checks."""
    rows = result.rows.get("undecidable", ())
    if not rows:
        return
    yield Text(f"could not be decided again: {plural(result.totals.undecidable, 'check')}", "bold yellow")
    for cause, some in groupby(sorted(rows, key=_cause), _cause):
        found = list(some)
        first = f", first: {found[0]['detail']}" if found[0]["detail"] else ""
        line = f"  {visible(cause)}: {plural(sum(row['checks'] for row in found), 'check')}{visible(first)}"
        yield Text(f"{line}{_samples(found[0])}")
    yield from _more(result, "undecidable")
    yield Text()


def _cause(row: Mapping[str, Any]) -> str:
    return str(row["cause"])


def _differences(rows: Sequence[Mapping[str, Any]]) -> Iterator[Text]:
    def subject(row: Mapping[str, Any]) -> tuple[str, str]:
        return row["principal"], row["acting_role"] or ""

    for (principal, role), some in groupby(sorted(rows, key=subject), subject):
        yield Text(f"  {visible(principal)}" + (f" as {visible(role)}" if role else ""), "bold")
        yield from map(_difference, some)


def _difference(row: Mapping[str, Any]) -> Text:
    name = row["resource"] + (f" -> {row['destination']}" if row["destination"] else "")
    delegated = " (delegated)" if row["delegated"] else ""
    used = f"{plural(row['checks'], 'time')}, last {_day(row)}"
    line = Text(f"    {visible(row['action'])} {visible(name)}{delegated}: {used}")
    line.append(f"  {_why(row, 'before')} -> {_why(row, 'after')}{_samples(row)}", "dim")
    return line


def _views(rows: Iterable[Mapping[str, Any]]) -> Iterator[Text]:
    for row in rows:
        used = f"{plural(row['checks'], 'time')}, last {_day(row)}"
        line = Text(f"  {visible(row['principal'])}: row view of {visible(row['resource'])}: {used}")
        line.append(_samples(row), "dim")
        yield line
        if row["rows_seen"] or row["rows_hidden"]:
            kinds = [text for name, text in (("rows_seen", "newly seen"), ("rows_hidden", "hidden")) if row[name]]
            yield Text(f"    rows may be {' and '.join(kinds)}: {_rows(row, 'before')} -> {_rows(row, 'after')}")
        for name, title in (("columns_seen", "columns newly seen"), ("columns_hidden", "columns hidden")):
            if row[name]:
                yield Text(f"    {title}: {visible(', '.join(row[name]))}")


def _rows(row: Mapping[str, Any], side: str) -> str:
    return visible(str(row[f"rows_{side}"]))


def _more(result: ReplayResult, kind: str) -> Iterator[Text]:
    more = result.further.get(kind, 0)
    if more:
        yield Text(f"  and {plural(more, 'further row')} in the table", "dim")


def _why(row: Mapping[str, Any], side: str) -> str:
    errors = row[f"errors_{side}"]
    return visible(str(row[f"by_{side}"]) + (f" (raised: {', '.join(errors)})" if errors else ""))


def _samples(row: Mapping[str, Any]) -> str:
    return f" [{visible(', '.join(row['samples']))}]" if row["samples"] else ""


def _day(row: Mapping[str, Any]) -> str:
    return f"{row['last_used']:%Y-%m-%d}" if row["last_used"] else "unknown"
