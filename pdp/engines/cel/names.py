"""Remarks on names in rules: a test of a name against a text that no check has, or not in this form or case.

Finds the tests in a rule; `pdp.config.names` judges the texts. The load of forbids asks for these remarks, and lint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from textwrap import shorten
from typing import Final, NamedTuple

from pdp.cel import patterns
from pdp.cel.checker import CheckedExpression
from pdp.cel.syntax import Call, Comprehension, Conditional, Constant, ListOf, Name, Node, Select
from pdp.cel.unparse import children, unparse, variable_name, walk
from pdp.config.names import NameCheck, name_fault
from pdp.config.origins import suggest
from pdp.engines.cel.conditions import NAME_KINDS, WORDS, empty_on_clusters
from pdp.engines.cel.lint.remarks import REMOVED_OPS, Remark, comparisons, elements_of, is_match, is_text, operands_of
from pdp.engines.cel.questions import find_clash
from pdp.model.trino_operations import RULE_ACTIONS, RULE_OPS, TRINO_OPERATIONS, TRINO_PREFIX


class NameTest(NamedTuple):
    """Test of a name against a constant text. `change` is the function that changes the case of the name before."""

    subject: str
    test: str
    text: str
    offset: int
    change: str = ""


ARGUMENT_KEYS: Final = frozenset({"name", "project", "user", "catalog", "schema", "table", "function", "property"})
"""Keys of `arguments`. `group_checks` gives the values."""
_TEST_KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("_==_", "_!=_", "@in"), "equals"),
    "startsWith": "starts",
    "endsWith": "ends",
    "contains": "contains",
}
NEVER: Final = "never"
"""Test of a text that no name meets, with what the rule joins to it."""
_LISTS: Final = frozenset({"roles", "groups", "actions"})
_CASES: Final = {"lowerAscii": str.lower, "upperAscii": str.upper}


def remark_on_names(checked: CheckedExpression, check: NameCheck) -> Iterator[Remark]:
    """Yield the remarks on names that no check has, and of a forbid on paths that Trino may spell in another way."""
    found = list(_on_names(checked, check))
    yield from found
    if not any(remark.code in (*_WRONG, "removed-op") for remark in found):
        yield from _on_no_question(checked, check)
    if check.forbid and check.known.trino:
        yield from _on_spelling(checked, check)


def _on_names(checked: CheckedExpression, check: NameCheck) -> Iterator[Remark]:
    tests = list(name_tests(checked))
    has_place = any(variable_name(node, checked) == "warehouse" for node in walk(checked.root))
    for found in tests:
        subject, test, text, offset, change = found
        if test == NEVER:
            yield _remark(check, "wrong-name", offset, f"no text that is made of `{subject}` here meets `{text}`")
            continue
        if change and _CASES[change](text) != text:
            message = f"`{text}` is never what `{change}` returns: write `{_CASES[change](text)}`"
            yield _remark(check, "wrong-name", offset, message)
        if subject in WORDS:
            yield from _on_word(found, check)
            continue
        kind = "place" if subject == "path" and not has_place else NAME_KINDS[subject]
        fault = None if change else name_fault(kind, test, text, check.known)
        if fault:
            yield _remark(check, "wrong-name" if fault.is_wrong else "unknown-name", offset, fault.message)
    yield from _on_questions(checked, [found for found in tests if found.subject in WORDS], check)


def _on_no_question(checked: CheckedExpression, check: NameCheck) -> Iterator[Remark]:
    """Yield a remark on a rule that holds for no question of the vocabulary. Lint has others of permits."""
    clash = find_clash(checked)
    if clash is None:
        return
    read = {variable_name(node, checked) for part in clash.parts for node in walk(part)} - {""}
    if not check.forbid and read != WORDS:
        return
    texts = [shorten(unparse(part), _LONGEST_PART, placeholder=" ...") for part in clash.parts[:_MOST_WORDS]]
    first, others = texts[0], " and ".join(f"`{text}`" for text in texts[1:])
    message = f"the rule never holds: no question meets `{first}`" + (f" together with {others}" if others else "")
    if clash.beside and "action" in read and len(clash.beside) <= _MOST_WORDS:
        message += f"; with `{first}`, `action` is one of {', '.join(clash.beside)}"
    yield _remark(check, "no-question", clash.parts[-1].pos, message)


_MOST_WORDS: Final = 12
_LONGEST_PART: Final = 200
"""Words that a message lists, and characters of a part of a rule there."""


def _remark(check: NameCheck, code: str, offset: int, message: str, hint: str = "") -> Remark:
    return Remark(code, offset, message, hint, "error" if check.stops(is_wrong=code in _WRONG) else "warning")


_WRONG: Final = frozenset({"wrong-name", "unknown-op", "unknown-catalog-action", "no-question"})
_WORD_CODES: Final = {"op": "unknown-op", "action": "unknown-catalog-action"}


def _on_word(found: NameTest, check: NameCheck) -> Iterator[Remark]:
    """Yield a remark of a forbid on a word of no question. `remarks` has the remarks of permits."""
    subject, test, text, offset, change = found
    if not check.forbid or change:
        return
    if test == "pattern":
        if not any(is_match(text, word) for word in (RULE_OPS if subject == "op" else RULE_ACTIONS)):
            yield _remark(check, _WORD_CODES[subject], offset, f"the pattern `{text}` fits no {subject}")
    elif subject == "op" and text in REMOVED_OPS:
        message = f"`{text}` is no check type any more and never asked for: {REMOVED_OPS[text]}"
        yield _remark(check, "removed-op", offset, message)
    elif fault := name_fault(subject, test, text, check.known):
        yield _remark(check, _WORD_CODES[subject] if fault.is_wrong else "unknown-name", offset, fault.message)


def _on_questions(checked: CheckedExpression, words: Sequence[NameTest], check: NameCheck) -> Iterator[Remark]:
    """Yield the remarks on tests of values absent in the questions of a rule."""
    nodes = list(walk(checked.root))
    if name := empty_on_clusters(checked):
        first = next(node.pos for node in nodes if variable_name(node, checked) == name)
        message = f"`{name}` is empty in questions without a warehouse, so the rule never holds: test `arguments`"
        yield _remark(check, "wrong-name", first, message)
    keys = [node for node in nodes if isinstance(node, Select) and variable_name(node.operand, checked) == "arguments"]
    for node in keys:
        if node.field not in ARGUMENT_KEYS:
            message = f"no question has the argument `{node.field}`{suggest(node.field, ARGUMENT_KEYS)}"
            yield _remark(check, "wrong-name", node.pos, message)
    if any(variable_name(node, checked) in ("arguments", "warehouse") for node in nodes):
        return
    exact = [found for found in words if found.test == "equals" and not found.change]
    if check.known.trino and exact and all(found.text.startswith(TRINO_PREFIX) for found in words):
        for found in exact:
            operation = TRINO_OPERATIONS.get(found.text.removeprefix(TRINO_PREFIX))
            if operation and operation.steps:
                asked = operation.steps[0].action
                message = (
                    f"`{found.text}` is asked only where no warehouse stands behind a catalog: for a mapped catalog "
                    f"test `action == '{asked}'`; a test of `arguments` says that others are meant"
                )
                yield _remark(check, "unknown-name", found.offset, message)


def name_tests(checked: CheckedExpression) -> Iterator[NameTest]:
    """Yield every test of a name against a constant text, also through the variable of a macro."""
    pending: list[tuple[Node, Mapping[str, Node]]] = [(checked.root, {})]
    while pending:
        node, bound = pending.pop()
        inside = {**bound, node.variable: node.range} if isinstance(node, Comprehension) else bound
        ranges = {node.range} if isinstance(node, Comprehension) else set()
        pending += [(child, bound if child in ranges else inside) for child in children(node)]
        operands = operands_of(node)
        if not isinstance(node, Call) or len(operands) != 2:
            continue
        is_part = node.function not in ("_==_", "_!=_", "@in")
        for tested, given in (operands,) if is_part else (operands, reversed(operands)):
            inner, before, after = _parts_joined(tested)
            subject, change = _subject(inner, bound, checked)
            if subject in NAME_KINDS:
                for text, offset in _texts(given, bound):
                    plain = NameTest(subject, "", text, offset, change)
                    yield from (
                        _tests(node.function, plain)
                        if not before + after
                        else _unjoined(node.function, plain, before, after)
                    )


def _parts_joined(node: Node) -> tuple[Node, str, str]:
    """Return the node that constant texts are joined to, and the texts before and behind."""
    before = after = ""
    while isinstance(node, Call) and node.function == "_+_":
        left, right = operands_of(node)
        texts = [constant_text(part) for part in (left, right)]
        if texts[1] is not None:
            node, after = left, texts[1] + after
        elif texts[0] is not None:
            node, before = right, before + texts[0]
        else:
            break
    return node, before, after


def _unjoined(function: str, found: NameTest, before: str, after: str) -> Iterator[NameTest]:
    """Yield the test of a name that a test of the name with constant texts around it means, where that is certain."""
    kind, text = _TEST_KINDS.get(function, ""), found.text
    is_begun = text.startswith(before) or (kind == "starts" and before.startswith(text))
    is_ended = text.endswith(after) or (kind == "ends" and after.endswith(text))
    fits = (is_begun or kind == "ends") and (is_ended or kind == "starts")
    is_long = len(text) >= len(before + after)
    if kind in ("", "contains") or function == "_!=_":
        return
    if not fits or (kind == "equals" and not is_long):
        yield found._replace(test=NEVER)
    elif is_long and (kind == "equals" or not (after if kind == "starts" else before)):
        rest = text[len(before) : len(text) - len(after)]
        yield from [found._replace(test=kind, text=rest)] if rest else []


def constant_text(node: Node) -> str | None:
    """Return the text that a node of constants is; None in doubt."""
    operands = operands_of(node)
    if isinstance(node, Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, Call) and node.function == "_+_":
        texts = [constant_text(part) for part in operands]
        return None if None in texts else "".join(text for text in texts if text is not None)
    if isinstance(node, Call) and node.function in _CASES and len(operands) == 1:
        text = constant_text(operands[0])
        # `lowerAscii` changes letters of ASCII alone
        return _CASES[node.function](text) if text is not None and text.isascii() else None
    return None


def _tests(function: str, found: NameTest) -> Iterator[NameTest]:
    if function in _TEST_KINDS:
        yield found._replace(test=_TEST_KINDS[function])
    elif function == "matches" and found.subject in WORDS:
        yield found._replace(test="pattern")
    elif function == "matches" and (pattern := patterns.find_string_test(found.text)):
        for text in pattern.texts:
            yield found._replace(test=pattern.kind, text=text)
    elif function == "matches" and (text := _beginning(found.text)):
        yield found._replace(test="starts", text=text)
    elif function == "matches" and (text := patterns.required_text(found.text)):
        yield found._replace(test="contains", text=text)


def _beginning(pattern: str) -> str:
    """Return a text with which every match of a pattern begins, at the beginning of the name; empty if none is sure."""
    found = None if "|" in _GROUP.sub("", pattern) else _LITERALS.match(pattern)
    return re.sub(r"\\(.)|\[(.)\]", r"\1\2", found[1]) if found else ""


def _subject(node: Node, bound: Mapping[str, Node], checked: CheckedExpression) -> tuple[str, str]:
    """Return the variable or key that a node reads, and the function that changes its case; empty for other nodes."""
    if isinstance(node, Name) and node.name in bound:
        return _subject(bound[node.name], {}, checked)
    if isinstance(node, Select):
        return f"{variable_name(node.operand, checked)}.{node.field}", ""
    operands = operands_of(node)
    if isinstance(node, Call) and node.function == "_[_]" and is_text(operands[1]):
        return f"{variable_name(operands[0], checked)}.{operands[1].value}", ""  # type: ignore[attr-defined]
    if isinstance(node, Call) and node.function == "_[_]" and variable_name(operands[0], checked) in _LISTS:
        return variable_name(operands[0], checked), ""
    if isinstance(node, Call) and node.function in _CASES and len(operands) == 1:
        return _subject(operands[0], bound, checked)[0], node.function
    return variable_name(node, checked), ""


def _texts(node: Node, bound: Mapping[str, Node]) -> Iterator[tuple[str, int]]:
    """Yield the constant texts that a node may be or hold, with their offsets."""
    if isinstance(node, Name) and node.name in bound:
        yield from _texts(bound[node.name], {})
    elif isinstance(node, ListOf | Conditional):
        for part in node.items if isinstance(node, ListOf) else (node.then, node.otherwise):
            yield from _texts(part, bound)
    elif isinstance(node, Call) and node.function == "_+_" and (text := constant_text(node)) is None:
        for part in operands_of(node):
            yield from _texts(part, bound) if isinstance(part, ListOf | Call) else ()
    elif (text := constant_text(node)) is not None:
        yield text, node.pos


_LITERALS: Final = re.compile(r"\^((?:(?:[\w~:/@-]|\\[.~:/@-]|\[[.~:/@-]\])(?![?*{]))+)")
"""Anchor of a pattern, and the signs behind that stand for themselves and may not be missing."""
_GROUP: Final = re.compile(r"\([^()]*\)")
_SPELLED_ALIKE: Final = frozenset({"lowerAscii", "size"})
"""Functions that return the same for every spelling."""
_NO_LETTER: Final = re.compile(r"\\[dDwWsSbBAzQE.\[\](){}^$*+?|/\\-]")
"""Escape of a pattern that names no letter."""
_CLASS: Final = re.compile(r"\\|\[:|\[\^[^\]]*[a-z]")
"""Part of a pattern that may mean capitals and has none: an escape, a named class, a class of all but some letters."""


def _on_spelling(checked: CheckedExpression, check: NameCheck) -> Iterator[Remark]:
    """Yield a remark on the first test of a path that is no plain test, where a text of the rule may mean capitals.

    Trino sends names in lower case. For an object that nobody registered, a forbid is asked under the spelling of its
    plain tests, too. The spellings that another test means are not known.
    """
    others = {test.offset for test in name_tests(checked) if test.subject != "path"}
    others |= {compared.offset for compared in comparisons(checked) if compared.variable != "path"}
    plain: set[Node] = set()
    for node in walk(checked.root):
        if isinstance(node, Call) and _is_plain(node, checked):
            plain.update(operands_of(node))
    texts = [node for node in walk(checked.root) if isinstance(node, Constant) and node.pos not in others]
    if not any(_may_mean_capitals(node.value) for node in texts if node not in plain):
        return
    paths = (node for node in walk(checked.root) if variable_name(node, checked) == "path" and node not in plain)
    if first := next(paths, None):
        message = (
            "Trino sends names in lower case, and this test of `path` may mean capitals: it misses an object that "
            "nobody registered"
        )
        hint = "write plain tests, such as `path.startsWith('HR.')`, or a pattern in lower case"
        yield _remark(check, "path-spelling", first.pos, message, hint)


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
    return node.function in _TEST_KINDS and bool(constants)


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
