"""Names in Cedar policies: ids and texts that no check has, or not in this form or case.

Finds what a policy compares; `pdp.config.names` judges the texts. The ids that no entity of any type has are in
`actions`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pdp.config.names import KnownNames, NameFault, case_variant, name_fault
from pdp.engines.cedar.actions import (
    CEDAR_ACTIONS,
    ENTITY_NAMES,
    NAMESPACE,
    NAMESPACE_TYPE,
    PROJECT,
    ROLE,
    TABULAR,
    USER,
    WAREHOUSE,
    Uid,
    as_text,
    path_of,
)
from pdp.engines.cedar.tokens import CedarToken, entity_tokens, tokens_of, unquote

Form = Mapping[str, Any]
"""Part of a policy in Cedar's JSON."""


class PolicyFault(NamedTuple):
    """Fault of a name in a policy, at the offset of a token of the text."""

    is_wrong: bool
    message: str
    offset: int


_MAY_COMPARE: Final = re.compile(
    r'principal\s*[=!]=|resource\s*(?:[=!]=|is)|[=!]=\s*principal|\.\s*contains|"\s*[=!]=|[=!]=\s*"|\blike\b'
)
"""Signs of a comparison with a text or with the principal. Cedar takes half a millisecond to parse a policy."""
_ATTRIBUTES: Final[Mapping[str, str]] = {
    "warehouse.name": "warehouse",
    "namespace.name": "place",
    "principal.source_id": "subject",
    "provider_id": "provider",
    "resource.name": "name",
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


def find_faults(text: str, known: KnownNames, declared: frozenset[Uid], form: Form | None) -> list[PolicyFault]:
    """Return the faults of the names in a policy, in the order of the text.

    `declared` are the entities of files, which may have any name. `form` is the policy in Cedar's JSON.
    """
    found = []
    for token in entity_tokens(text):
        fault = (
            None if (token.type, token.text) in declared else entity_fault((token.type, token.text), known, declared)
        )
        if fault:
            message = f"names `{as_text((token.type, token.text))}`: {fault.message}"
            found.append(PolicyFault(fault.is_wrong, message, token.start))
    if form is not None:
        tokens = list(tokens_of(text))
        for given, fault in _compared(form, known):
            found.append(PolicyFault(fault.is_wrong, fault.message, _offset_of(tokens, given)))
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
        if (types := _TYPES_OF.get(action)) and type in _RESOURCES and type not in types:
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
    return any(_is_constant(each["body"], each["kind"] == "unless") for each in form["conditions"])


def _is_constant(body: Form, value: bool) -> bool:
    """Tell whether a part of `&&`, or of `||` for true, is the constant that decides the whole."""
    sign = "||" if value else "&&"
    if sign in body:
        return any(_is_constant(body[sign][side], value) for side in ("left", "right"))
    return bool(body == {"Value": value})


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
        if fault := _text_fault(left, test, text, kinds, known):
            yield text, fault
    if operator.startswith("contains"):
        providers = (record.get("provider_id", {}) for each in (left, right) for record in _records(each))
        for value in (value for provider in providers for value in _values(provider)):
            fault = name_fault("provider", "equals", value, known)
            if fault and fault.is_wrong:  # a role may have a provider that no token comes from
                yield value, NameFault(True, f"compares `provider_id`: {fault.message}")


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
    kind = next((kinds[end] for end in (".".join(chain[-2:]), chain[-1] if chain else "") if end in kinds), "")
    fault = name_fault(kind, test, text, known) if kind else None
    return fault and NameFault(fault.is_wrong, f"compares `{'.'.join(chain)}`: {fault.message}")


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
