"""Tokens of Cedar policies: where each policy begins, and the entities whose attributes or parents a condition reads.

Serves places in messages and the division of batches. Cedar's own parser decides what is a policy; a text that Cedar
refuses may give any tokens here.

Cedar cannot raise for an unknown membership, name or place. So a forbid is asked without the parts on unknown values,
by Cedar's JSON of single policies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from pdp.engines.cedar.actions import NAME_ATTRIBUTES, NAMESPACE_TYPE, PROJECT, SERVER, WAREHOUSE, Uid

_TOKEN: Final = re.compile(
    r"""
    (?P<skip>\s+|//[^\r\n]*)
  | (?P<text>"(?:[^"\\]|\\.)*")
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<sign>::|==|!=|<=|>=|&&|\|\||.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(?:x([0-7][0-9A-Fa-f])|u\{([0-9A-Fa-f_]+)\}|(.))", re.DOTALL)
_PLAIN_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}
_OPENING: Final = {"(": ")", "[": "]", "{": "}"}
_COMPARED: Final = frozenset({"==", "!=", "in"})
_NOT_READ_AFTER: Final = frozenset({"contains"})


class CedarToken(NamedTuple):
    """CedarToken with its offset. `kind` is text, name, sign or entity; an entity's `text` is its id, not escaped."""

    kind: str
    text: str
    start: int
    type: str = ""


class PolicyText(NamedTuple):
    """One policy of a file: the offsets of its first character and behind its semicolon."""

    start: int
    end: int
    text: str


def split_policies(text: str) -> list[PolicyText]:
    """Return the policies of a text, in order. Text behind the last semicolon is one more."""
    policies, start, end = [], -1, 0
    for token in tokens_of(text):
        start = token.start if start < 0 else start
        end = token.start + len(token.text)
        if token.text == ";" and token.kind == "sign":
            policies.append(PolicyText(start, end, text[start:end]))
            start = -1
    if start >= 0:
        policies.append(PolicyText(start, len(text), text[start:].rstrip()))
    return policies


def named_entities(policy: str) -> frozenset[Uid]:
    """Return all entities that a policy names."""
    return frozenset((token.type, token.text) for token in entity_tokens(policy))


def entity_tokens(policy: str) -> list[CedarToken]:
    """Return the tokens of the entities that a policy names, with their types and places."""
    return [token for token in _joined(list(tokens_of(policy))) if token.kind == "entity"]


def condition_texts(policy: str) -> Iterator[str]:
    """Yield the strings of the conditions of a policy, without the ids of entities."""
    tokens = _joined(list(tokens_of(policy)))
    begin = next((at for at, token in enumerate(tokens) if token.text in ("when", "unless")), len(tokens))
    return (unquote(token) for token in tokens[begin:] if token.kind == "text")


def guarded_entities(policy: str) -> frozenset[Uid]:
    """Return the entities that a policy asks for an attribute by `has`."""
    tokens = _joined(list(tokens_of(policy)))
    pairs = pairwise(tokens)
    return frozenset((one.type, one.text) for one, next in pairs if one.kind == "entity" and next.text == "has")


def read_entities(policy: str) -> frozenset[Uid]:
    """Return the entities whose attributes, tags or parents a condition may read, because the policy names them.

    Leaves out an entity that is only compared, or that stands to the right of `in`, alone or in a set: the parents of
    the left side decide there. May return too many, but never too few.
    """
    tokens = _joined(list(tokens_of(policy)))
    begin = next((at for at, token in enumerate(tokens) if token.text in ("when", "unless")), len(tokens))
    found: set[Uid] = set()
    brackets: list[int] = []
    for at in range(begin, len(tokens)):
        token = tokens[at]
        if token.kind == "entity":
            if not _is_only_compared(tokens, at, brackets):
                found.add((token.type, token.text))
        elif token.kind == "sign" and token.text in _OPENING:
            brackets.append(at)
        elif token.kind == "sign" and token.text in _OPENING.values() and brackets:
            brackets.pop()
    return frozenset(found)


def _is_only_compared(tokens: Sequence[CedarToken], at: int, brackets: Sequence[int]) -> bool:
    """Tell whether the entity at a position is an operand of `==`, the right side of `in`, or an element of a set.

    Member access binds tighter than every operator. So a whole operand is known by its neighbours, and an element of a
    set by its commas and brackets: no expression leads from a set to an element.
    """
    before, after = tokens[at - 1], tokens[at + 1] if at + 1 < len(tokens) else CedarToken("sign", "", 0)
    if after.kind == "sign" and after.text in (".", "["):
        return False
    if before.text in _COMPARED and before.kind != "text":
        return after.text not in _COMPARED
    if after.kind == "sign" and after.text in ("==", "!="):
        return True
    opening = brackets[-1] if brackets else 0
    inside = tokens[opening].text
    is_element = inside == "[" or (inside == "(" and tokens[opening - 1].text in _NOT_READ_AFTER)
    return is_element and before.text in (inside, ",") and after.text in (_OPENING[inside], ",")


def _joined(tokens: Sequence[CedarToken]) -> list[CedarToken]:
    """Return the tokens with each `Type::"id"` as one token of the kind entity."""
    joined: list[CedarToken] = []
    at = 0
    while at < len(tokens):
        names, ahead = [], at
        while ahead + 1 < len(tokens) and tokens[ahead].kind == "name" and tokens[ahead + 1].text == "::":
            names.append(tokens[ahead].text)
            ahead += 2
        if names and ahead < len(tokens) and tokens[ahead].kind == "text":
            joined.append(CedarToken("entity", _unescape(tokens[ahead].text[1:-1]), tokens[at].start, "::".join(names)))
            at = ahead + 1
        else:
            joined.append(tokens[at])
            at += 1
    return joined


def tokens_of(text: str) -> Iterator[CedarToken]:
    """Yield the tokens of a policy or a schema."""
    for match in _TOKEN.finditer(text):
        if match.lastgroup != "skip":
            yield CedarToken(str(match.lastgroup), match.group(), match.start())


def unquote(token: CedarToken) -> str:
    """Return the text of a name, or the value of a string."""
    return _unescape(token.text[1:-1]) if token.kind == "text" else token.text


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_unescaped, text) if "\\" in text else text


def _unescaped(match: re.Match[str]) -> str:
    if match[3]:
        return _PLAIN_ESCAPES.get(match[3], match[3])
    return chr(int((match[1] or match[2]).replace("_", ""), 16))


# --- forms of policies, and unknown values ------------------------------------------------------------------------

_ATTRIBUTES: Final = {
    "roles": frozenset({"member_of"}),
    "project_roles": frozenset({"member_of", "roles"}),
    "email": frozenset({"attributes.email"}),
    **dict.fromkeys(NAME_ATTRIBUTES, frozenset({"name"})),
}
"""Attribute of a user or a context -> the evidence behind the attribute."""
MAY_READ: Final = re.compile(
    r"\\|\b(?:roles|project_roles|email)\b|Role|(?<!\baction )(?<!\bresource )\bin\b"
    rf"|\b(?:{'|'.join(sorted(NAME_ATTRIBUTES))})\b|\bcontext\b(?!\.|\s+has\b)"
)
"""Signs of a policy on evidence. A backslash may write any word in a string."""
_WIDE: Final = frozenset({WAREHOUSE, PROJECT, SERVER[0]})
"""Types of the containers of all places in a warehouse."""
UNKNOWN_EVIDENCE: Final = "the evidence of the principal is unknown"
"""Error of a forbid on unknown evidence."""
MISSING_NAME: Final = "nobody knows the name or the place of what is made"
"""Error of a forbid on a path that the check does not name."""
_ROLE_OR_VARIABLE: Final = re.compile(r"Role'|'Var': '(?!resource')")
"""Mention of a role, or of another variable than the resource, in an expression as Python prints it."""
_NEVER: Final = [{"kind": "when", "body": {"Value": False}}]


def values_read_by(form: Mapping[str, Any]) -> frozenset[str]:
    """Return the evidence that a policy reads, as in `Principal.unknown`, and `name` for the name of a new object."""
    scope = _scope_reads(form["principal"])
    return frozenset(scope.union(*(_reads(each["body"]) for each in form["conditions"]))) - {"place"}


def reads_place(form: Mapping[str, Any]) -> bool:
    """Tell whether a policy depends on the place of a resource in its warehouse."""
    scope = form["resource"]
    return _place_in(scope) != scope or any("place" in _reads(each["body"]) for each in form["conditions"])


def never(form: Mapping[str, Any]) -> dict[str, Any]:
    """Return a policy that never holds."""
    return {**form, "conditions": _NEVER}


def relax(form: dict[str, Any], unknown: frozenset[str]) -> dict[str, Any]:
    """Return a forbid without the conditions on unknown values.

    INVARIANT: the result holds wherever the forbid could hold. `when { a && b }` needs both, so without a part
    it holds more often, and `unless { a || b }` is `when { !a && !b }`.
    """
    scope = form["principal"]
    if not unknown.isdisjoint(_scope_reads(scope)):
        scope = {"op": "is", "entity_type": scope["entity_type"]} if scope["op"] == "is" else {"op": "All"}
    conditions = []
    for each in form["conditions"]:
        sign = "&&" if each["kind"] == "when" else "||"
        parts = [part for part in _parts(each["body"], sign) if unknown.isdisjoint(_reads(part))]
        if parts:
            body = parts[0]
            for part in parts[1:]:
                body = {sign: {"left": body, "right": part}}
            conditions.append({"kind": each["kind"], "body": body})
    resource = _place_in(form["resource"]) if "place" in unknown else form["resource"]
    return {**form, "principal": scope, "resource": resource, "conditions": conditions}


def _place_in(scope: dict[str, Any]) -> dict[str, Any]:
    """Return the scope of a resource for any place in a warehouse: the warehouse stands for each namespace inside."""
    around = scope["in"] if scope["op"] == "is" and "in" in scope else scope
    uid = around.get("entity", {})
    if uid.get("type") != NAMESPACE_TYPE:
        return scope
    warehouse = {"entity": {"type": WAREHOUSE, "id": uid["id"].partition("/")[0]}}
    return {**scope, "in": warehouse} if scope["op"] == "is" else {"op": "in", **warehouse}


def _parts(body: Any, sign: str) -> Iterator[Any]:
    """Yield the operands of `&&` or `||` around an expression, in order."""
    pending = [body]
    while pending:
        part = pending.pop()
        if sign in part:
            pending += [part[sign]["right"], part[sign]["left"]]
        else:
            yield part


def _scope_reads(scope: Mapping[str, Any]) -> frozenset[str]:
    """Return the evidence read by the scope of a policy. An unknown role may be in anything."""
    return frozenset({"member_of"}) if scope["op"] == "in" or "in" in scope else frozenset()


def _reads(body: Any) -> frozenset[str]:
    """Return the evidence read by an expression. In doubt, an expression reads."""
    found: set[str] = set()
    pending = [body]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending += part
        elif isinstance(part, Mapping):
            pending += () if _is_sure(part) else part.values()
            found |= _VARIABLES.get(str(part.get("Var")), frozenset())
            for sign in (".", "has"):
                attribute = part.get(sign)
                if isinstance(attribute, Mapping):
                    found |= _ATTRIBUTES.get(attribute.get("attr", ""), frozenset())
            if _is_membership(part):
                found.add("member_of")
    return frozenset(found)


_VARIABLES: Final = {"context": frozenset({"name"}), "resource": frozenset({"place"})}
"""Variable -> what an expression on the whole variable reads."""


def _is_sure(part: Mapping[str, Any]) -> bool:
    """Tell whether an expression on the context or the resource reads no name and no place in the warehouse.

    Such are single attributes of a context (`_ATTRIBUTES` has the names), the type of a resource, and the containers
    around the whole warehouse.
    """
    for sign in (".", "has"):
        if (access := part.get(sign)) and isinstance(access, Mapping) and "attr" in access:
            variable, attribute = access["left"].get("Var"), access["attr"]
            return variable == "context" or (variable == "resource" and attribute in ("warehouse", "project"))
    tested = part.get("in") or part.get("is")
    if not isinstance(tested, Mapping) or tested.get("left") != {"Var": "resource"}:
        return False
    around = tested.get("right") if "in" in part else tested.get("in")
    if around is None:
        return "is" in part
    uid = around.get("Value", {})
    return isinstance(uid, Mapping) and uid.get("__entity", {}).get("type") in _WIDE


def _is_membership(part: Mapping[str, Any]) -> bool:
    """Tell whether an expression may ask for a role of the principal: `principal in ...`, also by other words."""
    tested = part.get("in") or part.get("is")
    if not isinstance(tested, Mapping) or "left" not in tested or ("is" in part and "in" not in tested):
        return False
    variable = tested["left"].get("Var")
    return variable != "action" and (variable != "resource" or bool(_ROLE_OR_VARIABLE.search(str(tested))))
