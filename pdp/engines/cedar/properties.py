"""Properties of objects as tags: the text of each value, and the roles and users of access lists.

A key that begins with `access-` or `access_` has a list of `role:<id>`, `role-full:[<project>/]<provider>~<id>` and
`user:<provider>~<subject>` as a JSON text. A list with one wrong entry names nobody. All lists of a check together have
a bounded number of entries: Cedar parses each entry, about 12 us, while the process answers nobody else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pdp.engines.cedar.uids import ROLE, USER, Uid, as_value

_ACCESS: Final = ("access-", "access_")
_ENTRY: Final = re.compile(
    r"role:(?P<role>.+)|role-full:(?:(?P<project>[^/~]+)/)?(?P<full>[a-z0-9-]+~.+)|user:(?P<user>[a-z0-9-]+~.+)",
    re.DOTALL,
)


MOST_ENTRIES: Final = 500
"""Entries of all access lists in the properties of one check."""


class LongAccessLists(ValueError):
    """Access lists of a check with more than `MOST_ENTRIES` entries."""


def property_tags(properties: Mapping[str, Any], project: str) -> dict[str, Any]:
    """Return the tags of properties as JSON; raise LongAccessLists.

    A null has no tag. `project` is the default of full role names.
    """
    tags = {}
    count = 0
    for key, value in properties.items():
        if value is None:
            continue
        raw = _raw_text(value)
        listed = (_access_list(raw, project) if key.startswith(_ACCESS) else None) or ()
        count += len(listed)
        if count > MOST_ENTRIES:
            raise LongAccessLists
        tags[key] = {
            "raw": raw,
            "roles": [as_value(uid) for uid in listed if uid[0] == ROLE],
            "users": [as_value(uid) for uid in listed if uid[0] == USER],
            "global_role_ids": [],
        }
    return tags


def find_bad_list(properties: Mapping[str, Any]) -> str | None:
    """Return the first key with a wrong access list; None without one. Raise LongAccessLists."""
    for key, value in properties.items():
        if key.startswith(_ACCESS) and value is not None and _access_list(_raw_text(value), "") is None:
            return key
    return None


def _raw_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _access_list(raw: str, project: str) -> list[Uid] | None:
    """Return the roles and users of a list; None if the text is no list or an entry is wrong.

    Raise LongAccessLists.
    """
    try:
        entries = json.loads(raw)
        raw.encode()
    except (ValueError, RecursionError):
        return None
    if not isinstance(entries, list):
        return None
    if len(entries) > MOST_ENTRIES:
        raise LongAccessLists
    uids = list(_uids(entries, project))
    return uids if len(uids) == len(entries) else None


def _uids(entries: list[Any], project: str) -> Iterator[Uid]:
    """Yield the roles and users of the correct entries."""
    for entry in entries:
        match = _ENTRY.fullmatch(entry) if isinstance(entry, str) and _is_unicode(entry) else None
        if match is None:
            continue
        if match["full"]:
            yield ROLE, f"{match['project'] or project}/{match['full']}"
        else:
            yield (USER, match["user"]) if match["user"] else (ROLE, match["role"])


def _is_unicode(text: str) -> bool:
    """Tell whether a text has no lone surrogate: a JSON escape can write one, and no entity can have one."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
