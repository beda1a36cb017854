"""Names in Cedar policies: ids and texts that no check has, or not in this form or case.

Finds what a policy compares; `pdp.config.names` judges the texts. The ids that no entity of any type has are in
`actions`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from pdp.config.names import KnownNames, NameFault, name_fault
from pdp.config.words import case_variant, metadata_fault
from pdp.engines.cedar.actions import (
    CEDAR_ACTIONS,
    CONTEXTS,
    ENTITY_NAMES,
    NAMESPACE,
    NAMESPACE_TYPE,
    PROJECT,
    ROLE,
    TABULAR,
    TAG,
    USER,
    WAREHOUSE,
    Uid,
    as_text,
    path_of,
)
from pdp.engines.cedar.entities import EntityBuilder
from pdp.engines.cedar.entity_files import DeclaredNames
from pdp.engines.cedar.tokens import CedarToken, entity_tokens, tokens_of, unquote
from pdp.facts.snapshot import Facts
from pdp.model.question import Principal

Form = Mapping[str, Any]
"""Part of a policy in Cedar's JSON."""


class PolicyFault(NamedTuple):
    """Fault of a name in a policy, at the offset of a token of the text."""

    is_wrong: bool
    message: str
    offset: int


_MAY_COMPARE: Final = re.compile(
    r'principal\s*[=!]=|resource\s*(?:[=!]=|is)|[=!]=\s*principal|\.\s*contains|\bhas\b|"\s*[=!]=|[=!]=\s*"|\blike\b'
)
"""Signs of a comparison with a text or the principal, or of a test for an attribute. Cedar takes half a millisecond for
a policy."""
_ATTRIBUTES: Final[Mapping[str, str]] = {
    "warehouse.name": "warehouse",
    "namespace.name": "place",
    "principal.source_id": "subject",
    "provider_id": "provider",
    "resource.name": "name",
    **{f"context.{type}_name": "name" for type in ("table", "view", "generic_table")},
}
"""End of a chain of attributes -> the kind of its names."""
_NAMES: Final[Mapping[str, str]] = {WAREHOUSE: "warehouse", NAMESPACE_TYPE: "place", ROLE: "role"}
"""Type of the resource in the scope -> the kind of `resource.name`."""
_RESOURCES: Final = frozenset(f"{NAMESPACE}::{name}" for name in ENTITY_NAMES.values())
_TYPES_OF: Final[Mapping[str, frozenset[str]]] = {
    name: frozenset(
        f"{NAMESPACE}::{ENTITY_NAMES.get(type, ENTITY_NAMES['server'])}"
        for (_, type), same in CEDAR_ACTIONS.items()
        if same == name
    )
    for name in CEDAR_ACTIONS.values()
}
"""Id of an action -> types of the resources that checks ask about."""
_PREFIX: Final = re.compile(r"(?:server|project|warehouse|namespace|table|view|generic_table|tag|role|user):")


def may_compare(text: str) -> bool:
    """Tell whether a policy may compare a text or the principal, so that `find_faults` needs the policy's form."""
    # comments and brackets may stand between an operand and the operator
    signs = " ".join(token.text for token in tokens_of(text) if token.text not in ("(", ")"))
    return _MAY_COMPARE.search(signs) is not None


def find_faults(text: str, known: KnownNames, declared: DeclaredNames, form: Form | None) -> list[PolicyFault]:
    """Return the faults of the names in a policy, in the order of the text.

    `declared` are the names of files, where entities may have any name. `form` is the policy in Cedar's JSON.
    """
    found = []
    # a permit that misses an object closes
    asked = known if form is None or form["effect"] == "forbid" else replace(known, catalogs=frozenset())
    for token in entity_tokens(text):
        uid = token.type, token.text
        fault = None if uid in declared.uids else entity_fault(uid, asked, declared.uids)
        if fault:
            message = f"names `{as_text((token.type, token.text))}`: {fault.message}"
            found.append(PolicyFault(fault.is_wrong, message, token.start))
    if form is not None:
        tokens = list(tokens_of(text))
        for given, fault in _compared(form, asked):
            found.append(PolicyFault(fault.is_wrong, fault.message, _offset_of(tokens, given)))
        if form["effect"] == "forbid" and (name := _lacking_attribute(form, declared.attributes)):
            message = f"is never true: no entity has the attribute `{name}`, so name it in an entity file"
            at = next((token.start for token in tokens if token.text == name), 0)
            found.append(PolicyFault(False, message, at))
    return sorted(found, key=lambda fault: fault.offset)


def entity_fault(uid: Uid, known: KnownNames, declared: frozenset[Uid]) -> NameFault | None:
    """Return the fault of an id in the form of its type; None for an id that an entity may have."""
    type, id = uid
    if type == ROLE:
        return _role_fault(id, known, declared)
    if type == USER:
        provider, tilde, _ = id.partition("~")
        is_form = bool(tilde) and provider == provider.lower() and ":" not in provider
        return name_fault("provider", "equals", provider, known) if is_form else None
    if type == PROJECT:
        return name_fault("project", "equals", id, known)
    is_placed = type == NAMESPACE_TYPE or type in TABULAR
    if is_placed and not known.warehouses and (prefix := _PREFIX.match(id)):
        return NameFault(True, f"an id has no prefix: write `{id[prefix.end() :]}`")
    parts = path_of(uid)
    if type in TABULAR and len(parts) == 2 and "." in parts[1]:
        return NameFault(
            True, f"the parts of an id have `/` between them: write `{parts[0]}/{parts[1].replace('.', '/')}`"
        )
    spaces = parts[1:] if type == NAMESPACE_TYPE else parts[1:-1] if type in TABULAR else ()
    if dotted := next((part for part in spaces if "." in part), ""):
        nested = dotted.replace(".", "/")
        return NameFault(False, f"`{dotted}` is one namespace here: for namespaces within one another write `{nested}`")
    return _trino_fault(parts, 1 if type == NAMESPACE_TYPE else 2, known) if is_placed and known.trino else None


def _trino_fault(parts: Sequence[str], least: int, known: KnownNames) -> NameFault | None:
    """Return the fault of an id of a metadata table, or with a catalog of Trino before `least` other parts."""
    if len(parts) >= 2 + least and parts[1] in known.catalogs and parts[0] in known.warehouses:
        write = "/".join((parts[0], *parts[2:]))
        return NameFault(False, f"`{parts[1]}` is a catalog of Trino, and no part of an id: write `{write}`")
    if fault := metadata_fault("equals", "/".join(parts)):
        return NameFault(*fault)
    return None


def _role_fault(id: str, known: KnownNames, declared: frozenset[Uid]) -> NameFault | None:
    ids = known.roles | {name for type, name in declared if type == ROLE}
    if id in ids:
        return None
    fault = name_fault("role", "equals", id)
    near = case_variant(id, ids)
    return fault or (NameFault(True, f"the role `{near}` differs in case alone: write `{near}`") if near else None)


def _compared(form: Form, known: KnownNames) -> Iterator[tuple[str, NameFault]]:
    """Yield each text or id at fault that the scope or a condition compares, with the fault."""
    principal, resource = form["principal"], form["resource"]
    if principal["op"] == "==" and (fault := _principal_fault(principal["entity"])):
        yield principal["entity"]["id"], fault
    type = resource.get("entity_type") or resource.get("entity", {}).get("type", "")
    for action in _actions(form["action"]):
        # what is `in` a namespace may be a table
        is_exact = resource["op"] != "in"
        if is_exact and (types := _TYPES_OF.get(action)) and type in _RESOURCES and type not in types:
            yield action, NameFault(False, f"names the action `{action}`, which no check asks about a `{type}`")
    kinds = {**_ATTRIBUTES, "resource.name": _NAMES.get(type, "name")}
    for condition in form["conditions"]:
        for operator, part in _operators(condition["body"]):
            yield from _faults(operator, part, kinds, known)


def _actions(scope: Form) -> list[str]:
    """Return the ids of the actions that a scope names."""
    entities = scope.get("entities") or ([scope["entity"]] if "entity" in scope else [])
    return [entity["id"] for entity in entities]


def is_never_true(form: Form) -> bool:
    """Tell whether a constant part of a condition keeps a policy from ever holding."""
    return any({"Value": value} in _deciding(form, value) for value in (False, True))


@cache
def _made_attributes(variable: str) -> frozenset[str]:
    """Return the attributes that entities without a file may have; of contexts for the variable `context`."""
    if variable == "context":
        forms = CONTEXTS.values()
        own = (name for form in forms for name in (form.initial, form.updates, form.removal))
        return frozenset(("delegated", *own, *(name for form in forms for name in (*form.texts, *form.flags))))
    user = Principal("user", "a~b", attributes='{"email":"a@b"}')
    builder = EntityBuilder(Facts.empty(), user, on_server=False)
    types = (USER, ROLE) if variable == "principal" else (USER, ROLE, TAG, WAREHOUSE, NAMESPACE_TYPE, *TABULAR)
    texts = (builder.make((type, "a~b" if type == USER else "a/b")).text for type in types)
    return frozenset(name for text in texts for name in json.loads(text)["attrs"])


def _lacking_attribute(form: Form, declared: frozenset[str]) -> str:
    """Return an attribute that no entity has, and whose absence keeps a policy from ever holding; empty without one."""
    for part in _deciding(form, value=False):
        tested = part.get("has", {})
        variable = tested.get("left", {}).get("Var", "")
        if variable and tested["attr"] not in _made_attributes(variable) | declared:
            return str(tested["attr"])
    return ""


def _deciding(form: Form, value: bool) -> Iterator[Form]:
    """Yield the parts of conditions that keep a policy from ever holding if they are always false, or true."""
    for each in form["conditions"]:
        yield from _parts(each["body"], each["kind"] == "unless", value)


def _parts(body: Form, whole: bool, value: bool) -> Iterator[Form]:
    """Yield the parts of an expression with `value`, of which each alone makes the expression `whole`."""
    sign = "||" if whole else "&&"
    if sign in body:
        for side in ("left", "right"):
            yield from _parts(body[sign][side], whole, value)
    elif "!" in body:
        yield from _parts(body["!"]["arg"], not whole, value)
    elif whole == value:
        yield body


def _operators(body: Form) -> Iterator[tuple[str, Form]]:
    """Yield every operator below an expression, with the operands."""
    pending: list[Any] = [body]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            for operator, operands in part.items():
                if isinstance(operands, dict) and "left" in operands:
                    yield operator, operands
                if operator != "Value":
                    pending.append(operands)
        elif isinstance(part, list):
            pending += part


def _faults(operator: str, part: Form, kinds: Mapping[str, str], known: KnownNames) -> Iterator[tuple[str, NameFault]]:
    left, right = part["left"], part.get("right", {})
    if operator in ("==", "!=", "contains"):
        for given, fault in (*_value_faults(left, right, kinds, known), *_value_faults(right, left, kinds, known)):
            if fault.is_wrong or operator != "!=":  # beside `!=`, an unknown name makes a forbid bind more
                yield given, fault
    elif operator == "like":
        test, text = _pattern(part["pattern"])
        found = _text_fault(left, test, text, kinds, known) or _capitals_fault(left, part["pattern"], kinds, known)
        if found:
            yield text, found
    if operator.startswith("contains"):
        providers = (record.get("provider_id", {}) for each in (left, right) for record in _records(each))
        for value in (value for provider in providers for value in _values(provider)):
            found = name_fault("provider", "equals", value, known)
            if found and found.is_wrong:  # a role may have a provider that no token comes from
                yield value, NameFault(True, f"compares `provider_id`: {found.message}")


def _value_faults(
    tested: Form, given: Form, kinds: Mapping[str, str], known: KnownNames
) -> Iterator[tuple[str, NameFault]]:
    for value in _values(given):
        if isinstance(value, str) and (fault := _text_fault(tested, "equals", value, kinds, known)):
            yield value, fault
        if tested == {"Var": "principal"} and isinstance(value, dict) and "__entity" in value:
            entity = value["__entity"]
            if fault := _principal_fault(entity):
                yield entity["id"], fault


def _text_fault(tested: Form, test: str, text: str, kinds: Mapping[str, str], known: KnownNames) -> NameFault | None:
    chain = _chain(tested)
    kind = _kind_of(chain, kinds)
    fault = name_fault(kind, test, text, known) if kind else None
    return fault and NameFault(fault.is_wrong, f"compares `{'.'.join(chain)}`: {fault.message}")


def _kind_of(chain: Sequence[str], kinds: Mapping[str, str]) -> str:
    return next((kinds[end] for end in (".".join(chain[-2:]), chain[-1] if chain else "") if end in kinds), "")


def _chain(part: Form) -> list[str]:
    """Return the names of a chain of attributes, from the variable on; empty for another expression."""
    names: list[str] = []
    while "." in part:
        names.append(part["."]["attr"])
        part = part["."]["left"]
    return [part["Var"], *reversed(names)] if "Var" in part else []


def _values(part: Form) -> Iterator[Any]:
    """Yield the constants that an expression is, or has as elements."""
    if "Value" in part:
        yield from part["Value"] if isinstance(part["Value"], list) else [part["Value"]]
    for element in part.get("Set", ()):
        yield from _values(element)


def _records(part: Form) -> Iterator[Form]:
    if "Record" in part:
        yield part["Record"]
    for element in part.get("Set", ()):
        yield from _records(element)


def _pattern(pattern: Sequence[Any]) -> tuple[str, str]:
    """Return the text before the first wildcard of a pattern, and how a name meets the text."""
    text = ""
    for element in pattern:
        if element == "Wildcard":
            return "starts", text
        text += element["Literal"]
    return "equals", text


def _capitals_fault(
    tested: Form, pattern: Sequence[Any], kinds: Mapping[str, str], known: KnownNames
) -> NameFault | None:
    """Return the fault of a pattern with capitals on names that Trino lowers. A name as a whole is asked as written."""
    text = "".join("*" if element == "Wildcard" else element["Literal"] for element in pattern)
    is_name = _kind_of(_chain(tested), kinds) in ("name", "place")
    if not known.trino or not is_name or "Wildcard" not in pattern or text == text.lower():
        return None
    message = "Trino sends names in lower case, and this pattern with capitals misses an object that nobody registered"
    return NameFault(False, f"compares `{'.'.join(_chain(tested))}`: {message}: write `{text.lower()}`, too")


def _principal_fault(entity: Form) -> NameFault | None:
    """Return the fault of a role that is compared with the principal: nobody is a role but who acts as the role."""
    if entity.get("type") != ROLE:
        return None
    uid = as_text((ROLE, entity["id"]))
    message = f"compares the principal with `{uid}`, and a member of a role is a user: write `principal in {uid}`"
    return NameFault(True, f"{message}, which holds under the acting role, too")


def _offset_of(tokens: Sequence[CedarToken], text: str) -> int:
    """Return the place of the first token with a text, or with the beginning of a pattern."""
    texts = [token for token in tokens if token.kind == "text"]
    exact = (token for token in texts if unquote(token) == text)
    begins = (token for token in texts if unquote(token).startswith(text))
    found = next(exact, None) or next(begins, None)
    return found.start if found else 0
