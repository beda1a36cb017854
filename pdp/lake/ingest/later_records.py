"""Records of later schemas, read without unknown fields.

Where a field might decide, readers refuse unknown ones. The lake takes the record all the same, and marks the checks:
this version cannot decide them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, get_args, get_origin

import msgspec

from pdp.audit.records.schema import Record
from pdp.audit.records.tables import asked_text

_RECORD: Final = msgspec.json.Decoder(Record)


class LaterRecord(NamedTuple):
    """Record without unknown fields. `inputs` has the JSON of each of its inputs, with the schema as a field more.

    Readers of inputs refuse unknown fields, so no version decides such a check again by half of the inputs. `asked` has
    the checks of the caller that became several, marked likewise; None without any. Each check is refused once.
    """

    record: Record
    inputs: tuple[str, ...]
    asked: str | None


def read_later(data: bytes) -> LaterRecord | None:
    """Return the record of a line without unknown fields; None without a record."""
    try:
        fields = msgspec.json.decode(data)
        record = _RECORD.decode(msgspec.json.encode(_known(fields, Record)))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    recorded = [each for each in (fields.get("inputs"), *(fields.get("otherInputs") or ())) if each]
    texts = tuple(msgspec.json.encode({"schema": record.schema, **each}).decode() for each in recorded)
    return LaterRecord(record, texts, _asked(record))


def _asked(record: Record) -> str | None:
    """Return the checks of the caller that became several, with the schema among the inputs of each."""
    text = asked_text(record)
    if text is None:
        return None
    asked = msgspec.json.decode(text)
    for group in asked.get("groups", ()):
        group["inputs"] = f'{{"schema":{record.schema},{group["inputs"].removeprefix("{")}'
    return msgspec.json.encode(asked).decode()


def _known(value: Any, type: Any) -> Any:
    """Return a value of JSON without the fields unknown to the type."""
    struct = _struct(type)
    if struct is not None and isinstance(value, Mapping):
        fields = {field.encode_name: field.type for field in msgspec.structs.fields(struct)}
        return {name: _known(part, fields[name]) for name, part in value.items() if name in fields}
    if isinstance(value, list):
        inner = _element(type)
        return [_known(part, inner) for part in value]
    return value


def _struct(type: Any) -> Any:
    """Return the struct of a type, also beside other forms."""
    if isinstance(type, msgspec.StructMeta):
        return type
    if get_origin(type) in (list, tuple, dict):
        return None
    return next((found for part in get_args(type) if (found := _struct(part))), None)


def _element(type: Any) -> Any:
    """Return the type of the elements of a list."""
    if get_origin(type) in (list, tuple):
        return get_args(type)[0]
    return next((found for part in get_args(type) if (found := _element(part)) is not None), None)
