"""Pieces of generated code, what they may call, and the forms of the macros."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import msgspec

from pdp.cel import budget as runtime
from pdp.cel import values
from pdp.cel.functions import Overload, dispatcher
from pdp.cel.types import Type

UNKNOWN: Final = object()
PLAIN_EQUAL: Final = frozenset({"bool", "int", "uint", "string", "bytes", "null_type", "timestamp", "duration", "type"})
EXACT: Final = frozenset({"string", "bytes", "null_type", "timestamp", "duration"})
"""Kinds that Python's `==` never takes for another kind."""
HASHED: Final = frozenset({"int", "uint", "string", "bytes"})
HELPERS: Final[dict[str, Callable[..., Any]]] = {
    "_all_of": runtime.all_of,
    "_any_of": runtime.any_of,
    "_exists": runtime.exists,
    "_every": runtime.every,
    "_take": runtime.take,
    "_grow": runtime.grow,
    "_scan": runtime.scan,
    "_fresh_pattern": runtime.fresh_pattern,
    "_fail": runtime.fail,
    "_budget": runtime.budget,
    "_boolean": values.boolean,
    "_equal": values.equal,
    "_unequal": values.unequal,
    "_contained": values.contained,
    "_in_list": values.in_list,
    "_key_in_map": values.key_in_map,
    "_index": values.index,
    "_field": values.field,
    "_has_field": values.has_field,
    "_build_map": values.build_map,
    "_keys": values.keys,
    "_elements": values.elements,
    "_all": all,
    "_any": any,
    "_sum": sum,
    "_tuple": tuple,
}


class Fragment(msgspec.Struct, frozen=True):
    """Generated code. An `atom` needs no parentheses wherever it goes, a `test` none between `and` and `or`."""

    code: str
    raises: bool = False
    atom: bool = True
    value: Any = UNKNOWN
    test: bool = False

    @property
    def known(self) -> bool:
        return self.value is not UNKNOWN

    def __str__(self) -> str:
        return self.code if self.atom else f"({self.code})"

    @property
    def operand(self) -> str:
        """As one side of `and` or `or`."""
        return self.code if self.test else str(self)


@lru_cache(maxsize=512)
def shared_dispatcher(name: str, overloads: Any) -> Callable[..., Any]:
    return dispatcher(name, overloads)


ATOMIC: Final = frozenset({"{0}.startswith({1})", "{0}.endswith({1})"})


def fits(overload: Overload, kinds: list[str]) -> bool:
    return all(param.kind in ("?A", kind) for param, kind in zip(overload.params, kinds, strict=True))


def comparison(code: str, raises: bool, test: bool = True) -> Fragment:
    return Fragment(code, raises, atom=False, test=test)


def plain_equal(type: Type) -> bool:
    """Whether Python's own `==` is the language's: not where NaN or mixed kinds may hide inside."""
    if type.kind == "list":
        return type.params[0].kind != "double" and plain_equal(type.params[0])
    return type.kind in PLAIN_EQUAL or type.kind == "double"


def _exists(name: str, items: Fragment, body: Fragment, where: Fragment | None) -> Fragment:
    if body.raises:
        return Fragment(f"_exists(lambda {name}: {body.code}, {items.code})", raises=True)
    return Fragment(f"_any({body} for {name} in {items.code})", items.raises)


def _every(name: str, items: Fragment, body: Fragment, where: Fragment | None) -> Fragment:
    if body.raises:
        return Fragment(f"_every(lambda {name}: {body.code}, {items.code})", raises=True)
    return Fragment(f"_all({body} for {name} in {items.code})", items.raises)


def _one(name: str, items: Fragment, body: Fragment, where: Fragment | None) -> Fragment:
    return Fragment(f"_sum(1 for {name} in {items.code} if {body}) == 1", items.raises or body.raises, atom=False)


def _map(name: str, items: Fragment, body: Fragment, where: Fragment | None) -> Fragment:
    condition = f" if {where}" if where is not None else ""
    raises = items.raises or body.raises or (where is not None and where.raises)
    return Fragment(f"_tuple({body} for {name} in {items.code}{condition})", raises)


def _filter(name: str, items: Fragment, body: Fragment, where: Fragment | None) -> Fragment:
    return Fragment(f"_tuple({name} for {name} in {items.code} if {body})", items.raises or body.raises)


MACROS: Final = {"exists": _exists, "all": _every, "exists_one": _one, "map": _map, "filter": _filter}
