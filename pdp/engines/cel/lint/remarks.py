"""Remarks on a single rule: on errors, on the texts of comparisons, and on patterns.

Owns the codes of lint. Knows no files and no other rules. Remarks on names are in `pdp.engines.cel.names`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Final, Literal, NamedTuple, TypeAlias

from pdp.cel import patterns
from pdp.cel.checker import CheckedExpression
from pdp.cel.compiler import EXTENSIONS
from pdp.cel.functions import STANDARD
from pdp.cel.syntax import LIST_HINT, Call, CompileError, Constant, ListOf, MapOf, Node
from pdp.cel.unparse import operands_of, variable_name, walk
from pdp.cel.values import RuleError
from pdp.engines.cel.conditions import role_tests
from pdp.engines.cel.program import RULE_VARIABLES
from pdp.model.vocabulary import CEL_CHECKS, CONTENT_TYPE, NESSIE_CHECKS, OPERATIONS

Severity: TypeAlias = Literal["error", "warning", "info"]
CODES: Final[Mapping[str, Severity]] = {
    **dict.fromkeys(("configuration", "unreadable-file", "syntax", "properties-escape", "type-mismatch"), "error"),
    **dict.fromkeys(("not-boolean", "unknown-variable", "unknown-function", "unknown-op"), "error"),
    **dict.fromkeys(("bad-pattern", "always-raises", "duplicate-id", "wrong-name", "no-question"), "error"),
    **dict.fromkeys(("ignored-key", "removed-op", "detached-typo", "matches-everything", "empty-variable"), "warning"),
    **dict.fromkeys(("duplicate-rule", "unreachable", "shadowed", "lookalike-names", "untested-warehouse"), "warning"),
    **dict.fromkeys(("implicit-rule-off", "reserved-id", "unseen-reference", "unknown-catalog-action"), "warning"),
    **dict.fromkeys(("unknown-name", "path-spelling"), "warning"),
    **dict.fromkeys(("implicit-rule-on", "actions-on-reference", "unknown-content-type", "unknown-action"), "info"),
    **dict.fromkeys(("redundant-wildcard", "unsent-variable", "seen-roles", "witness"), "info"),
}
"""All codes of lint with their severity. Codes are stable, messages are not."""

REMOVED_OPS: Final[Mapping[str, str]] = {"VIEW_REFLOG": "Nessie has no reflog any more"}
"""Former check types with the reason of their removal."""
CONTENT_TYPES: Final = frozenset({*CONTENT_TYPE.values(), "DELTA_LAKE_TABLE", "UDF"})
"""Nessie's own content types. Catalogs may register others."""
CATALOG_ACTIONS: Final = frozenset(action for _, action in CEL_CHECKS)
"""Values of `action`."""
_UNSENT: Final[Mapping[str, str]] = {
    "attributes": "Trino sends no attributes of users",
    "properties": "Trino sends no properties of objects",
}
"""Map variable -> the reason why the map is empty where a surface does not send it."""

_EVERYTHING: Final = re.compile(r"\^?(?:\.\*)?\$?")
_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_CONSTRUCTS: Final = (
    (re.compile(r"\(\?<?[=!]"), "lookaround"),
    (re.compile(r"\(\?>"), "an atomic group"),
    (re.compile(r"[*+?}]\+"), "a possessive quantifier"),
    (re.compile(r"\\[1-9]|\(\?P="), "a backreference"),
)


class Remark(NamedTuple):
    """A remark on the character at `offset` of the text of a rule. `severity` is that of the code, unless it is set."""

    code: str
    offset: int
    message: str
    hint: str = ""
    severity: Severity | None = None


NAME_CODES: Final = frozenset(
    {"wrong-name", "no-question", "unknown-name", "path-spelling", "unknown-op", "unknown-catalog-action", "removed-op"}
)
"""Codes of the remarks on names."""


class Comparison(NamedTuple):
    """A test of a variable against a constant text. `test` is the name of the function."""

    variable: str
    test: str
    text: str
    offset: int


def suggest(word: str, known: Collection[str]) -> str:
    """Return a hint with the most similar known word, or "" if none is similar."""
    folded = {name.casefold(): name for name in sorted(known)}
    found = get_close_matches(word.casefold(), folded, 1)
    return f"did you mean `{folded[found[0]]}`?" if found else ""


def remark_on_error(text: str, error: CompileError, parsed: bool) -> Remark:
    """Return the remark on an invalid rule. `parsed`: the syntax is right, the error is in the types."""
    offset, message = error.offset, error.message
    if not parsed:
        hint = error.hint or ("a backtick neither begins nor ends a text" if "`" in text else "")
        return Remark("syntax", offset, message, hint)
    found = _WORD.match(text, offset)
    name = found[0] if found else ""
    functions = {key[0] for key in STANDARD}
    if not name or name in functions or name in RULE_VARIABLES:
        return Remark("type-mismatch", offset, message, _type_hint(message))
    if text[offset + len(name) :].lstrip().startswith("("):
        hint = error.hint or _extension_hint(name) or suggest(name, functions)
        return Remark("unknown-function", offset, message, hint)
    return Remark("unknown-variable", offset, message, error.hint or _variable_hint(text, offset, name))


_LIST: Final = r"list\(string\)"
_TYPE_HINTS: Final = (
    (re.compile(r"no overload of `@in` for \(.*, string\)"), f"{LIST_HINT}, or `x.contains('a')` for a part of a text"),
    (re.compile(rf"no overload of `(?:contains|matches|startsWith|endsWith)` for \({_LIST}"), "write `'a' in roles`"),
    (re.compile(rf"no overload of `_[!=]=_` for \((?:{_LIST}, string|string, {_LIST})\)"), "write `'a' in roles`"),
)
"""Message of a wrong type -> what to write."""
_NAMES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("user", "username", "principal", "subject", "sub", "caller", "identity"),
        "`role` is the name of the user; `roles`, `groups` and `attributes.key` tell more",
    ),
    **dict.fromkeys(("claims", "token", "jwt"), "claims of the token are `attributes.key`"),
    **dict.fromkeys(("resource", "table", "namespace", "schema", "object"), "write `path`"),
    **dict.fromkeys(("branch", "tag", "reference"), "write `ref`"),
    "catalog": "write `warehouse`",
    "operation": "write `op`",
}
"""Name of a variable elsewhere -> what to write here."""
_DOTTED: Final = re.compile(r"\w+(?:[.]\w+)*+(?!\()")
_COMPARED: Final = re.compile(r"(?:[=!]=|\[|,)\s{0,8}\Z")


def _type_hint(message: str) -> str:
    return next((hint for known, hint in _TYPE_HINTS if known.match(message)), "")


def _variable_hint(text: str, offset: int, name: str) -> str:
    """Return a hint on an unknown variable: behind a comparison or in a list, it may be a text without quotes."""
    known = suggest(name, RULE_VARIABLES)
    if not _COMPARED.search(text, max(0, offset - 12), offset):
        return _NAMES.get(name.casefold(), known)
    found = _DOTTED.match(text, offset)
    quoted = f"write `'{found[0] if found else name}'` if it is a text"
    return f"{quoted}; {known}" if known else quoted


def _extension_hint(name: str) -> str:
    owners = [extension for extension, table in EXTENSIONS.items() if any(name == key[0] for key in table)]
    return f"it is of the extension `{owners[0]}`, which `policies.cel_extensions` enables" if owners else ""


def remark_on_rule(checked: CheckedExpression, *, forbid: bool = False) -> Iterator[Remark]:
    """Yield the remarks on the texts and patterns of a valid rule. A forbid sees more actions than Nessie checks."""
    kind = checked.types[checked.root].kind
    if kind not in ("bool", "dyn"):
        yield Remark("not-boolean", checked.root.pos, f"the result is of type {kind}, so the rule always raises")
    for compared in comparisons(checked):
        yield from _on_comparison(compared, _OF_FORBIDS if forbid else _WORDS)
    yield from _on_unsent(checked)
    for node in walk(checked.root):
        if isinstance(node, Call):
            yield from _on_call(node)


def _on_unsent(checked: CheckedExpression) -> Iterator[Remark]:
    """Yield a remark on the first use of each variable that not every surface sends."""
    uses: dict[str, int] = {}
    for node in walk(checked.root):
        name = variable_name(node, checked)
        if name in _UNSENT:
            uses[name] = min(node.pos, uses.get(name, node.pos))
    for name, offset in uses.items():
        message = (
            f"`{name}` is not known everywhere: {_UNSENT[name]}, so the map is empty there and a missing key raises"
        )
        yield Remark("unsent-variable", offset, message, f"test first: `has({name}.key)`, or `'key' in {name}`")


_PERMITS_SEE: Final = "roles of tokens, of requests and of `role_map`, and stored ones with `identity.cel_roles: all`"
_SEEN_BY_PERMITS: Final[Mapping[int, str]] = dict.fromkeys((1, 0, -1), f"sees {_PERMITS_SEE}")
_SEEN_BY_FORBIDS: Final[Mapping[int, str]] = {
    1: "counts roles by any evidence: of tokens and requests, of `role_map`, stored and nested ones",
    0: f"binds if it does with roles by any evidence, or with {_PERMITS_SEE}",
    -1: f"counts against a role only {_PERMITS_SEE}",
}
"""Kind of use of `roles` -> which roles the rule sees there."""


def remark_on_roles(checked: CheckedExpression, *, forbid: bool) -> Iterator[Remark]:
    """Yield a remark on which roles a rule sees, if it reads any."""
    seen = _SEEN_BY_FORBIDS if forbid else _SEEN_BY_PERMITS
    uses = [node.pos for node in walk(checked.root) if variable_name(node, checked) == "roles"]
    if uses:
        kinds = role_tests(checked)
        messages = dict.fromkeys(text for kind, text in seen.items() if kind in kinds)
        yield Remark("seen-roles", min(uses), f"the rule {'; it '.join(messages)}")


def comparisons(checked: CheckedExpression) -> Iterator[Comparison]:
    """Yield every test of a variable against a constant text."""
    for node in walk(checked.root):
        operands = operands_of(node)
        names = [name for operand in operands if (name := variable_name(operand, checked))]
        if isinstance(node, Call) and len(operands) == 2 and len(names) == 1:
            for constant in filter(is_text, [part for operand in operands for part in elements_of(operand)]):
                yield Comparison(names[0], node.function, constant.value, constant.pos)  # type: ignore[attr-defined]


_TESTS: Final[Mapping[str, str]] = {
    "equals": "_==_", "starts": "startsWith", "ends": "endsWith", "contains": "contains",
}  # fmt: skip
"""Kind of a test of strings -> the equal function."""


def path_comparisons(checked: CheckedExpression) -> Iterator[Comparison]:
    """Yield every test of `path` against a constant text. For a pattern, yield the equal tests, if there are any."""
    for compared in comparisons(checked):
        if compared.variable != "path":
            continue
        if compared.test in ("_==_", "_!=_", "@in", *_TESTS.values()):
            yield compared
        elif compared.test == "matches" and (test := patterns.find_string_test(compared.text)):
            yield from (compared._replace(test=_TESTS[test.kind], text=text) for text in test.texts)


def elements_of(node: Node) -> tuple[Node, ...]:
    """Return the elements of a list, the keys of a map, or the node alone."""
    if isinstance(node, MapOf):
        return tuple([key for key, _ in node.entries])
    return node.items if isinstance(node, ListOf) else (node,)


def is_text(node: Node | None) -> bool:
    """Tell whether a node is a constant text."""
    return isinstance(node, Constant) and isinstance(node.value, str)


def never_equal(tested: Node, given: Iterable[Node]) -> Iterator[Node]:
    """Yield the constants and lists that no name in `tested` equals: `dyn` hides their type from the type check."""
    wanted = _constant_type(tested) or str
    for part in given:
        if _constant_type(part) not in (None, wanted):
            yield part


def _constant_type(node: Node) -> type | None:
    """Return the type of a constant, a list, a map, or a conversion to text or bytes; None for other nodes."""
    while isinstance(node, Call) and node.function == "dyn" and len(node.args) == 1:
        node = node.args[0]
    if isinstance(node, Call):
        return {"bytes": bytes, "string": str}.get(node.function)
    if isinstance(node, ListOf | MapOf):
        return list
    return type(node.value) if isinstance(node, Constant) else None


_WORDS: Final[Mapping[str, frozenset[str]]] = {
    "op": NESSIE_CHECKS,
    "contentType": frozenset({*CONTENT_TYPES, ""}),
    "actions": OPERATIONS,
    "action": CATALOG_ACTIONS,
}
"""Variable -> the possible texts, for permits."""
_OF_FORBIDS: Final = {name: words for name, words in _WORDS.items() if name not in ("op", "action")}
"""The same for forbids. `pdp.engines.cel.names` judges the other two."""


def _on_comparison(compared: Comparison, words: Mapping[str, frozenset[str]]) -> Iterator[Remark]:
    known = words.get(compared.variable)
    if known and not any(_fits(compared, word) for word in known):
        yield _unknown(compared, known)
    if compared.variable == "ref" and compared.text == "DETATCHED":
        yield Remark("detached-typo", compared.offset, "a detached ref is called `DETACHED`", "write `DETACHED`")


def _fits(compared: Comparison, word: str) -> bool:
    test, text = compared.test, compared.text
    if test == "matches":
        return is_match(text, word)
    tests = {"startsWith": word.startswith, "endsWith": word.endswith, "contains": word.__contains__}
    return tests[test](text) if test in tests else text == word or test not in ("_==_", "_!=_", "@in")


def is_match(pattern: str, word: str) -> bool:
    """Tell whether the pattern matches the word. True if RE2 refuses the pattern, as another remark says so."""
    try:
        return patterns.matches(word, pattern)
    except RuleError:
        return True


def _unknown(compared: Comparison, known: Collection[str]) -> Remark:
    text, hint = compared.text, suggest(compared.text, known)
    if compared.variable == "op" and text in REMOVED_OPS:
        message = f"`{text}` is no check type any more and never asked for: {REMOVED_OPS[text]}"
        return Remark("removed-op", compared.offset, message)
    if compared.variable == "op":
        return Remark("unknown-op", compared.offset, f"`{text}` fits none of the check types that `op` can be", hint)
    if compared.variable == "contentType":
        return Remark("unknown-content-type", compared.offset, f"`{text}` is no content type of Nessie's own", hint)
    if compared.variable == "action":
        return Remark("unknown-catalog-action", compared.offset, f"`{text}` fits none of the catalog's actions", hint)
    return Remark("unknown-action", compared.offset, f"`{text}` is no action of Nessie's catalog operations", hint)


def _on_call(node: Call) -> Iterator[Remark]:
    operands = operands_of(node)
    if len(operands) != 2 or not isinstance(operands[1], Constant) or not isinstance(operands[1].value, str):
        return
    text, offset = operands[1].value, operands[1].pos
    if node.function in ("startsWith", "endsWith", "contains") and not text:
        yield Remark("matches-everything", offset, f"`{node.function}('')` is true of every text")
    if node.function == "matches":
        yield from _on_pattern(text, offset)


def _on_pattern(pattern: str, offset: int) -> Iterator[Remark]:
    try:
        patterns.compile_pattern(pattern)
    except RuleError as error:
        construct = next((name for known, name in _CONSTRUCTS if known.search(pattern)), "")
        hint = f"RE2 has no {construct.removeprefix('a ').removeprefix('an ')}" if construct else ""
        yield Remark("bad-pattern", offset, error.detail, hint)
        return
    if _EVERYTHING.fullmatch(pattern):
        lines = " without a line break" if pattern == "^.*$" else ""
        yield Remark("matches-everything", offset, f"the pattern `{pattern}` matches every text{lines}")
    elif "|" not in pattern and (pattern.startswith(".*") or _ends_open(pattern)):
        hint = _simpler_test(patterns.find_string_test(pattern))
        yield Remark(
            "redundant-wildcard", offset, "`matches` looks anywhere in the text: `.*` at an end adds nothing", hint
        )


def _ends_open(pattern: str) -> bool:
    """Tell whether the pattern ends with `.*` and the dot is not escaped."""
    body = pattern.removesuffix(".*")
    return body != pattern and (len(body) - len(body.rstrip("\\"))) % 2 == 0


def _simpler_test(test: patterns.StringTest | None) -> str:
    names = {"contains": "contains", "starts": "startsWith", "ends": "endsWith"}
    if test is None or test.one_line or test.kind not in names or len(test.texts) != 1:
        return ""
    return f"`.{names[test.kind]}('{test.texts[0]}')` says the same"


_PLAIN_TESTS: Final = frozenset({"_==_", "_!=_", "@in", *_TESTS.values()})
_SPELLED_ALIKE: Final = frozenset({"lowerAscii", "size"})
"""Functions that return the same for every spelling."""
_NO_LETTER: Final = re.compile(r"\\[dDwWsSbBAzQE.\[\](){}^$*+?|/\\-]")
"""Escape of a pattern that names no letter."""
_CLASS: Final = re.compile(r"\\|\[:|\[\^[^\]]*[a-z]")
"""Part of a pattern that may mean capitals and has none: an escape, a named class, a class of all but some letters."""


def find_spelling(checked: CheckedExpression, others: Collection[int]) -> int | None:
    """Return the offset of the first test of `path` that is no plain test, where a text may mean capitals; or None.

    `others` are the offsets of texts that other variables are compared with.
    """
    plain: set[Node] = set()
    for node in walk(checked.root):
        if isinstance(node, Call) and _is_plain(node, checked):
            plain.update(operands_of(node))
    texts = [node for node in walk(checked.root) if isinstance(node, Constant) and node.pos not in others]
    if not any(_may_mean_capitals(node.value) for node in texts if node not in plain):
        return None
    paths = (node.pos for node in walk(checked.root) if variable_name(node, checked) == "path" and node not in plain)
    return next(paths, None)


def _is_plain(node: Call, checked: CheckedExpression) -> bool:
    """Tell whether a call compares `path` with a constant text, or returns the same for every spelling."""
    operands = operands_of(node)
    if node.function in _SPELLED_ALIKE:
        return True
    if len(operands) != 2 or "path" not in (variable_name(operand, checked) for operand in operands):
        return False
    if node.function == "matches":
        test = patterns.find_string_test(operands[1].value) if is_text(operands[1]) else None  # type: ignore[attr-defined]
        return bool(test) and not (test and test.one_line)
    constants = [operand for operand in operands if all(map(is_text, elements_of(operand)))]
    return node.function in _PLAIN_TESTS and bool(constants)


def _may_mean_capitals(value: object) -> bool:
    """Tell whether a constant may mean a capital letter: as a letter, by an escape, or by a class of a pattern."""
    if isinstance(value, bytes):
        return value != value.lower()
    if not isinstance(value, str):
        return False
    if value.startswith("(?i)"):
        return False
    bare = _NO_LETTER.sub("", value)
    return bare != bare.lower() or bool(_CLASS.search(bare))
