"""Generated code of the macros over lists and maps.

`exists` and `all` absorb errors of single elements, so a test that may raise needs the absorbing helpers. For
other tests, Python's `any` and `all` suffice. The other macros raise the error of any element, as a generator
expression does. Source: the CEL specification (langdef.md), "Macros".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from pdp.cel.fragments import Fragment
from pdp.cel.syntax import Macro

MacroForm: TypeAlias = Callable[[str, Fragment, Fragment, Fragment | None], Fragment]
"""Function from the Python variable, the elements, the body and the filter of a macro to its code."""


def _exists(name: str, items: Fragment, body: Fragment, where: Fragment | None) -> Fragment:
    if body.raises:
        return Fragment(f"_exists(lambda {name}: {body.code}, {items.code})", raises=True)
    return Fragment(f"_any({body} for {name} in {items.code})", items.raises)


def _all(name: str, items: Fragment, body: Fragment, where: Fragment | None) -> Fragment:
    if body.raises:
        return Fragment(f"_every(lambda {name}: {body.code}, {items.code})", raises=True)
    return Fragment(f"_all({body} for {name} in {items.code})", items.raises)


def _exists_one(name: str, items: Fragment, body: Fragment, where: Fragment | None) -> Fragment:
    return Fragment(f"_sum(1 for {name} in {items.code} if {body}) == 1", items.raises or body.raises, atom=False)


def _map(name: str, items: Fragment, body: Fragment, where: Fragment | None) -> Fragment:
    condition = f" if {where}" if where is not None else ""
    raises = items.raises or body.raises or (where is not None and where.raises)
    return Fragment(f"_tuple({body} for {name} in {items.code}{condition})", raises)


def _filter(name: str, items: Fragment, body: Fragment, where: Fragment | None) -> Fragment:
    return Fragment(f"_tuple({name} for {name} in {items.code} if {body})", items.raises or body.raises)


MACRO_FORMS: Final[Mapping[Macro, MacroForm]] = {
    "exists": _exists,
    "all": _all,
    "exists_one": _exists_one,
    "map": _map,
    "filter": _filter,
}
"""Code of each macro."""
