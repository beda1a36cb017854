"""Words of closed sets that rules compare with: of ops, actions, operations, and types of content.

Loads the vocabulary of rules on first use: settings alone need none. Must not know the names of a configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Final, TypeAlias

from pdp.config.origins import suggest

Fault: TypeAlias = tuple[bool, str]
"""Whether no check has the text, and the message."""
TESTS: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "equals": str.__eq__,
    "starts": str.startswith,
    "ends": str.endswith,
    "contains": str.__contains__,
}
"""Test of a text -> the function."""


def case_variant(text: str, known: Collection[str]) -> str:
    """Return the known name that differs from a text in case alone; empty for a known text, and without one."""
    folded = text.casefold()
    return "" if text in known else min((name for name in known if name.casefold() == folded), default="")


def _content_fault(test: str, text: str) -> Fault | None:
    """Return the fault of a type of content. Catalogs may register types of their own, so nothing is certain."""
    from pdp.model.vocabulary import CONTENT_TYPE  # noqa: PLC0415

    if test != "equals":
        return None
    if near := case_variant(text, frozenset(CONTENT_TYPE.values())):
        return (False, f"`{text}` and `{near}` differ in case: write `{near}`")
    type = text.casefold().removeprefix("iceberg_")
    if wanted := CONTENT_TYPE.get(type) or CONTENT_TYPE.get(type.removesuffix("s")):
        return None if text == wanted else (False, f"`{text}` is no type of content of Nessie: write `{wanted}`")
    return None


def _api_fault(test: str, text: str) -> Fault | None:
    """Return the fault of the name of an API: Nessie sends two, and callers may send names of their own."""
    if test != "equals" or text in _APIS:
        return None
    if near := case_variant(text, _APIS):
        return (False, f"`{text}` and `{near}` differ in case: write `{near}`")
    is_known = text.casefold() in ("trino", "lakeql")
    message = f"`{text}`: requests of Trino and LakeQL have no name of an API, `api.apiName` is '' there"
    return (False, message) if is_known else None


_APIS: Final = frozenset({"Nessie", "Iceberg"})


def metadata_fault(test: str, text: str) -> Fault | None:
    """Return the fault of a path to a metadata table, such as `hr.pay$files`: Trino's are asked as the table."""
    from pdp.model.trino_operations import METADATA_TABLES  # noqa: PLC0415

    table, sign, suffix = text.rpartition("$")
    if test not in ("equals", "starts") or not table or table.endswith(".") or not sign:
        return None
    if suffix in METADATA_TABLES or (test == "starts" and any(name.startswith(suffix) for name in METADATA_TABLES)):
        return (False, f"`{text}`: a metadata table of Trino is asked as its table: write `{table}`")
    return None


def _named_fault(test: str, text: str) -> Fault | None:
    """Return the fault of the name of an object without a path, which has no type before it."""
    type, _, name = text.partition(":")
    if test not in ("equals", "starts") or type not in ("role", "tag", "user", "project", "warehouse") or not name:
        return None
    return (False, f"`{text}`: a name has no type before it: write `{name}`")


def _group_fault(test: str, text: str) -> Fault | None:
    bare = text.removeprefix("group:")
    return (False, f"`{text}`: a group has no prefix: write `{bare}`") if bare not in (text, "") else None


@cache
def _words(what: str) -> tuple[frozenset[str], Mapping[str, str]]:
    """Return the words of `op` or `action`, and other names of actions with the name in rules."""
    from pdp.model.trino_operations import RULE_ACTIONS, RULE_OPS  # noqa: PLC0415
    from pdp.model.vocabulary import ALIASES  # noqa: PLC0415

    aliases = {other: action for names in ALIASES.values() for other, action in names.items()}
    return RULE_OPS if what == "op" else RULE_ACTIONS, aliases


def _other_word(what: str, text: str) -> str:
    """Return what to write for a word of the other variable, or for an operation of Trino; empty for other texts."""
    other = "action" if what == "op" else "op"
    if text in _words(other)[0]:
        return f": test `{other} == '{text}'`"
    return f": write `trino:{text}`" if f"trino:{text}" in _words(what)[0] else ""


def _word_of(what: str) -> Callable[[str, str], Fault | None]:
    """Return the judge of words of a closed set."""

    def fault(test: str, text: str) -> Fault | None:
        words, aliases = _words(what)
        if text in words:
            return None
        if met := [word for word in words if TESTS[test](word, text)]:
            is_asked_raw = what == "action" and all(word.isupper() for word in met)
            message = f"`{text}` begins or ends no action but check types, which few callers ask for: test `op`"
            return (False, message) if is_asked_raw else None
        if test == "equals" and aliases.get(text) in words:
            return (True, f"`{text}` is asked under another name: write `{aliases[text]}`")
        folded = text.casefold()
        near = min((word for word in words if TESTS[test](word.casefold(), folded)), default="")
        write = f": write `{near}`" if test == "equals" else ""
        advice = _other_word(what, text) if test == "equals" else ""
        fits = f"fits no {what}{advice or suggest(text, words)}"
        return (True, f"`{text}` " + (f"and the {what} `{near}` differ in case{write}" if near else fits))

    return fault


def _operation_fault(test: str, text: str) -> Fault | None:
    """Return the fault of a word of `actions`. Callers may send words of their own, but none of `action` or `op`."""
    from pdp.model.vocabulary import OPERATIONS  # noqa: PLC0415

    if any(TESTS[test](word, text) for word in OPERATIONS):
        return None
    folded = text.casefold()
    near = min((word for word in OPERATIONS if TESTS[test](word.casefold(), folded)), default="")
    if near:
        return (True, f"`{text}` and the word `{near}` of `actions` differ in case")
    if test == "equals" and (near := f"CATALOG_{text.upper()}") in OPERATIONS:
        return (True, f"`{text}` is no word of `actions`: write `{near}`, or test `op` or `action`")
    for what in ("op", "action") if text.isupper() else ("action", "op"):
        words, aliases = _words(what)
        word = min((word for word in {*words, *aliases} if TESTS[test](word.casefold(), folded)), default="")
        if word:
            shown = f"test `{what} == '{aliases.get(word, word)}'`" if test == "equals" else f"test `{what}`"
            return (True, f"`{text}` is no word of `actions`, which has those of Nessie's catalogs: {shown}")
    return None


def _configuration_fault(test: str, text: str) -> Fault | None:
    """Return the fault of a type of the repository configuration: of a type of objects, which is another thing."""
    from pdp.model.vocabulary import CONTENT_TYPE, TABULAR_TYPES  # noqa: PLC0415

    types = {*CONTENT_TYPE, *TABULAR_TYPES, *map(str.lower, CONTENT_TYPE.values()), "content", "reference", "warehouse"}
    word = min((word for word in types if TESTS[test](word, text.casefold())), default="")
    if not word or (test != "equals" and len(text) < len("view")):
        return None  # a catalog may have types of its own
    content = CONTENT_TYPE.get(word.removeprefix("iceberg_"), "")
    write = f": test `contentType == '{content}'`" if content and test == "equals" else ": test `contentType` or `op`"
    return (True, f"`{text}`: `type` is the type of the repository configuration, and of no object{write}")


JUDGES: Final[Mapping[str, Callable[[str, str], Fault | None]]] = {
    "content": _content_fault,
    "api": _api_fault,
    "named": _named_fault,
    "group": _group_fault,
    "configuration": _configuration_fault,
    "operation": _operation_fault,
    "op": _word_of("op"),
    "action": _word_of("action"),
}
"""Kind of words -> the function that returns the fault of a text."""
