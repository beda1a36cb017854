"""Records of an audit as lines for people. Every text is escaped: names come from clients."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click
import msgspec

from pdp.audit.reader import AuditLine
from pdp.audit.records.schema import FILTER_EVENT, Record
from pdp.audit.selection import RecordItem, RecordSelection, inputs_of
from pdp.cli.terminal import plural, visible

MOST_ITEMS: Final = 10
"""Items of a record that have a line of their own."""
_SHORT: Final = 500
"""Characters of a value after which the rest is left out."""
_COLOURS: Final[Mapping[str, str]] = {"allow": "green", "deny": "red", "refused": "yellow"}
_KNOWN: Final = ("event", "schema", "id", "instance", "seq", "time")
_HIDDEN: Final = re.compile(r"[^ -~]+")


def safe_json(line: bytes) -> str:
    """Return a line of JSON as the same JSON with every character escaped that could control a terminal."""
    text = line.decode().strip()
    return text if text.isprintable() else _HIDDEN.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    """Return signs of a string as JSON escapes, but for those that can be printed."""
    return "".join(
        sign if sign.isprintable() else msgspec.json.encode(sign).decode()[1:-1] if sign < " " else _unicode(sign)
        for sign in found[0]
    )


def _unicode(sign: str) -> str:
    units = sign.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


class RecordText:
    """Text of records. With a selection by item, only the chosen items show. `colour`: for a terminal with colours."""

    def __init__(self, selection: RecordSelection, *, colour: bool) -> None:
        self._selection = selection
        self._colour = colour

    def lines(self, line: AuditLine) -> Iterator[str]:
        """Yield the lines of a record."""
        start = _time(line.head.time)
        if line.record is None:
            yield f"{start}  {self._event(msgspec.json.decode(line.data))}  [{visible(line.head.id)}]"
            return
        first, *rest = self._record(line.record)
        yield f"{start}  {first}  [{_source(line.record)}]"
        yield from (f"    {text}" for text in rest)

    def _record(self, record: Record) -> Iterator[str]:
        """Yield the line of a record, then those of some of its items."""
        if record.unencodable:
            text = f"{record.allowed.count('1')} of {len(record.allowed)} allowed, not encoded: {record.unencodable}"
            yield f"{self._word('deny')} {_value(text)}"
            return
        if record.listing is not None:
            counts = f"{record.listing.permitted} of {record.listing.candidates} listed"
            yield f"{self._word('list')} {counts}  {_fields(record.listing.asked)}"
            return
        items = self._selection.items(record)
        shown = items if self._selection.by_item else [item for item in items if item.asked]
        what = ""
        if record.event == FILTER_EVENT:
            masked = sum(1 for reason in record.masks.values() if reason)
            what = f"rows, {plural(masked, 'mask')}: " if masked else "rows: "
        yield from self._items(record, shown, what)

    def _items(self, record: Record, items: Sequence[RecordItem], what: str) -> Iterator[str]:
        """Yield the line of a single item; of several, a line with the counts and lines of the denied ones."""
        if len(items) == 1:
            yield f"{self._verdict(items[0])} {what}{_item(record, items[0])}"
            return
        denied = [item for item in items if not item.row.allowed]
        word = "none" if not items else "deny" if len(denied) == len(items) else "allow" if not denied else "mixed"
        who = " ".join(dict.fromkeys(_subject(record, item) for item in items[:MOST_ITEMS]))
        actions = " ".join(dict.fromkeys(visible(item.entry.action) for item in items[:MOST_ITEMS]))
        counts = f"{len(items) - len(denied):,} of {len(items):,} allowed"
        yield f"{self._word(word)} {what}{' '.join(filter(None, (who, actions, counts)))}"
        listed = items if self._selection.by_item or len(items) <= MOST_ITEMS else denied
        yield from (f"{self._verdict(item)} {_item(record, item)}" for item in listed[:MOST_ITEMS])
        if len(listed) > MOST_ITEMS:
            yield f"and {len(listed) - MOST_ITEMS:,} more"

    def _verdict(self, item: RecordItem) -> str:
        return self._word("allow" if item.row.allowed else "deny")

    def _word(self, word: str) -> str:
        colour = _COLOURS.get(word) if self._colour else None
        return click.style(f"{word:<7}", fg=colour) if colour else f"{word:<7}"

    def _event(self, event: Mapping[str, Any]) -> str:
        kind = event.get("event")
        rest = {name: value for name, value in event.items() if name not in _KNOWN}
        if kind == "refusal":
            word, first = "refused", ["status", "code", "endpoint"]
        elif kind == "management":
            word, first = "allow" if rest.pop("allowed", None) is True else "deny", ["operation"]
        elif kind == "rewrite":
            word, first = "allow" if rest.pop("allowed", None) is True else "deny", ["principal", "code"]
        else:
            word, first = str(kind), ["authority" if kind == "report" else "what"]
        texts = [_value(rest.pop(name, "")) for name in first]
        details = rest.pop("details", None) or {}
        return " ".join(text for text in (self._word(word), *texts, _fields(details), _fields(rest)) if text)


def _item(record: Record, item: RecordItem) -> str:
    """Return an item in words: who, what, on which object, why."""
    reason = _value(item.row.by)
    if item.entry.error is not None:
        reason = f"invalid check: {_value(item.entry.error.get('message', ''))}"
        if not item.entry.action:
            return reason
    words = [_subject(record, item), visible(item.entry.action), _value(item.resource)]
    inputs = inputs_of(record, item.entry)
    if inputs and inputs.acting_role:
        words.append(f"as {visible(inputs.acting_role)}")
    if item.entry.delegated:
        words.append("delegated")
    words.append(f" {reason}")
    if item.row.errors:
        words.append(f"raised: {_value(' '.join(item.row.errors))}")
    return " ".join(words)


def _subject(record: Record, item: RecordItem) -> str:
    inputs = inputs_of(record, item.entry)
    return visible(item.entry.subject or (inputs.principal.id if inputs else "-"))


def _source(record: Record) -> str:
    inputs = [record.inputs, *record.other_inputs] if record.inputs else []
    queries = dict.fromkeys(each.context.query_id for each in inputs if each and each.context.query_id)
    parts = [record.surface, record.caller, *queries, record.request_id, record.id]
    return visible(" ".join(part for part in parts if part))


def _fields(values: Mapping[str, Any]) -> str:
    return " ".join(f"{visible(name)}={_value(value)}" for name, value in values.items() if value not in ("", {}, []))


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return visible(text if len(text) <= _SHORT else f"{text[:_SHORT]}...")


def _time(time: str) -> str:
    """Return a time with milliseconds, without the letter in the middle."""
    date, _, clock = time.partition("T")
    return visible(f"{date} {clock[:12]}Z" if clock.endswith("Z") else time)
