"""Remarks on names in rules: a test of a name against a text that no check has, or not in this form or case.

Finds the tests in a rule; `pdp.config.names` judges the texts. The load of forbids asks for these remarks, and lint.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from textwrap import shorten
from typing import Final, NamedTuple

import msgspec

from pdp.cel import patterns
from pdp.cel.checker import CheckedExpression
from pdp.cel.syntax import Call, Comprehension, Conditional, ListOf, Logic, MapOf, Name, Node, Select
from pdp.cel.unparse import (
    CASES,
    CONVERSIONS,
    children,
    constant_text,
    operands_of,
    parts_joined,
    unparse,
    variable_name,
    walk,
)
from pdp.config.names import NameCheck, name_fault
from pdp.config.origins import suggest
from pdp.config.words import TESTS
from pdp.engines.cel.conditions import NAME_KINDS, WORDS, empty_on_clusters, requirements_of
from pdp.engines.cel.lint.remarks import (
    REMOVED_OPS,
    Remark,
    comparisons,
    elements_of,
    find_spelling,
    is_match,
    is_text,
    never_equal,
)
from pdp.engines.cel.questions import MADE, asked_ops, asked_questions, find_clash
from pdp.model.trino_operations import (
    RULE_ACTIONS,
    RULE_OPS,
    SYSTEM_TABLES,
    TRINO_PREFIX,
    argument_keys,
    is_asked_mapped,
    operation_of,
)
from pdp.model.vocabulary import CEL_CHECKS


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
_NEEDED: Final = _TEST_KINDS.keys() - {"_!=_"} | {"matches"}
_LISTS: Final = frozenset({"roles", "groups", "actions"})


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
        if change and CASES[change](text) != text:
            message = f"`{text}` is never what `{change}` returns: write `{CASES[change](text)}`"
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
    of_lists = {found.text for found in name_tests(checked) if found.subject in WORDS} & _LIST_WORDS
    if of_lists and "path" in read:
        message += "; lists have no `path`: forbid `action == 'include_in_list'` for what is below, by its `path`"
    if clash.beside and "action" in read and len(clash.beside) <= _MOST_WORDS:
        message += f"; with `{first}`, `action` is one of {', '.join(clash.beside)}"
    yield _remark(check, "no-question", clash.parts[-1].pos, message)


_LIST_WORDS: Final = frozenset(
    {"READ_ENTRIES", *(action for (_, action), checks in CEL_CHECKS.items() if checks[-1].op == "READ_ENTRIES")}
)
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
    ops = asked_ops(requirements_of(checked))
    yield from _on_arguments(checked, ops, check)
    yield from _on_mapped_catalogs(checked, ops, check)
    keys = [node for node in nodes if isinstance(node, Select) and variable_name(node.operand, checked) == "arguments"]
    for node in keys:
        if node.field not in ARGUMENT_KEYS:
            message = f"no question has the argument `{node.field}`{suggest(node.field, ARGUMENT_KEYS)}"
            yield _remark(check, "wrong-name", node.pos, message)
    read = {variable_name(node, checked) for node in nodes}
    asked = asked_questions(checked) if read & WORDS else ()
    if asked and all(MADE in one for one in asked):
        yield from _on_new_names(checked, check)
    if check.known.trino and not read & {"arguments", "warehouse"}:
        first = next((node.pos for node in nodes if variable_name(node, checked) in WORDS), 0)
        for offset, what, named in _operations(words, [one["op"] for one in asked], first):
            if wanted := _of_vocabulary(named):
                message = f"{what} is asked {_UNMAPPED} {wanted}; a test of `arguments` says that others are meant"
                yield _remark(check, "unknown-name", offset, message)


def _operations(words: Sequence[NameTest], asked: Sequence[str], first: int) -> list[tuple[int, str, Sequence[str]]]:
    """Return the tests of a rule about operations of Trino alone: place, text and ops. `first` is the first word's."""
    exact = [one for one in words if one.test in ("equals", "starts") and not one.change]
    if exact and all(one.text.startswith(TRINO_PREFIX) for one in words):
        return [
            (one.offset, f"`{one.text}`", [op for op in RULE_OPS if TESTS[one.test](op, one.text)]) for one in exact
        ]
    return [(first, "the rule", asked)] if asked and all(op.startswith(TRINO_PREFIX) for op in asked) else []


def _on_new_names(checked: CheckedExpression, check: NameCheck) -> Iterator[Remark]:
    """Yield a remark on each path of one part in a rule about new objects other than namespaces."""
    for found in name_tests(checked):
        if (found.subject, found.test) == ("path", "equals") and found.text.strip(".") and "." not in found.text:
            message = f"`{found.text}` is the name of what is made, in no namespace: for what is made in a namespace "
            message += f"of this name test `path.startsWith('{found.text}.')`"
            yield _remark(check, "unknown-name", found.offset, message)


def _of_vocabulary(ops: Iterable[str]) -> str:
    """Return a test of the action that a mapped catalog is asked for in place of operations; empty for no such one."""
    actions = {operation.steps[0].action for op in ops if (operation := operation_of(op)) and operation.steps}
    example = f"`action == '{min(actions & {'read_data'} or actions)}'`" if actions else ""
    return f"`action`, such as {example}" if len(actions) > 1 else example


def _on_arguments(checked: CheckedExpression, ops: Collection[str], check: NameCheck) -> Iterator[Remark]:
    """Yield a remark on each test of an argument that no question of a rule has, or not in this form."""
    keys = frozenset[str]().union(*map(argument_keys, ops))
    properties = ops and all(argument_keys(op) == {"property"} for op in ops)
    functions = ops and all((operation := operation_of(op)) and operation.rule == "function" for op in ops)
    for found in name_tests(checked) if ops else ():
        variable, _, key = found.subject.partition(".")
        if variable != "arguments" or key not in ARGUMENT_KEYS:
            continue
        if key not in keys:
            known = f": `arguments` has {', '.join(f'`{one}`' for one in sorted(keys))}" if keys else ""
            message = f"no question that the rule is about has the argument `{key}`{known}"
            yield _remark(check, "wrong-name", found.offset, message)
        elif functions and key == "function" and _is_of_namespace(found, check):
            catalog, schema, *_ = found.text.split(".")
            wanted = f"{_of_vocabulary(ops)}, `warehouse` and `path == '{schema}'`"
            message = f"functions of `{catalog}.{schema}` are asked in the words of the vocabulary: test {wanted}"
            yield _remark(check, "wrong-name", found.offset, message)
        elif properties and found.test == "equals" and len(ops) == 1:
            has_catalog, wants_catalog = "." in found.text, ops == _OF_CATALOGS
            if has_catalog != wants_catalog:
                first = min(check.known.catalogs, default="catalog")
                write = f"{first}.{found.text}" if wants_catalog else found.text.rpartition(".")[2]
                what = "a property of a catalog has the catalog" if wants_catalog else "a system property has nothing"
                message = f"`{found.text}`: {what} before the name: write `{write}`"
                yield _remark(check, "wrong-name", found.offset, message)


def _is_of_namespace(found: NameTest, check: NameCheck) -> bool:
    """Tell whether a function can only be one of a namespace of a warehouse, and is not asked by name."""
    catalog, _, rest = found.text.partition(".")
    schema, dot, _ = rest.partition(".")
    is_placed = found.test in ("equals", "starts") and bool(dot) and schema not in SYSTEM_TABLES
    return is_placed and catalog in check.known.catalogs - check.known.builtin


_OF_CATALOGS: Final = frozenset({"trino:SetCatalogSessionProperty"})
_UNMAPPED: Final = "only where no warehouse stands behind a catalog: for a mapped catalog test"


def _on_mapped_catalogs(checked: CheckedExpression, ops: Collection[str], check: NameCheck) -> Iterator[Remark]:
    """Yield a remark on a mapped catalog in `arguments`: its schemas and tables are asked in words of the vocabulary.

    Only tests that the rule needs count, so that the rule holds for no catalog but these.
    """
    parts = checked.root.parts if isinstance(checked.root, Logic) and checked.root.conjunction else (checked.root,)
    needed = [found for one in parts for found in _needed_tests(one, checked) if found.subject.startswith("arguments.")]
    tested = [found for found in needed if found.subject == "arguments.catalog" and found.test in TESTS]
    places = [(one, name) for one in tested for name in sorted(check.known.catalogs) if TESTS[one.test](name, one.text)]
    if not places:
        return
    keys = {found.subject.partition(".")[2] for found in needed}
    trino = [op for op in ops or RULE_OPS if "catalog" in argument_keys(op)]
    named = {name for _, name in places}
    is_open = [
        keys <= argument_keys(op)
        and (is_asked_mapped(op) or (argument_keys(op) == {"catalog"} and bool(named & check.known.warehouses)))
        for op in trino
    ]
    wanted = _of_vocabulary(op for op, open in zip(trino, is_open, strict=True) if not open)
    if not trino or (any(is_open) and not wanted):
        return
    first, catalog = places[0]
    message = f"`{catalog}` has a warehouse behind it, "
    if wanted:
        message += f"and what is in it is asked in the words of the vocabulary: test {wanted}, `warehouse` and `path`"
    else:
        message += "whose name `arguments.catalog` has there"
    may_hold = any(is_open) or any(one.text not in named or one.test != "equals" for one in tested)
    yield _remark(check, "unknown-name" if may_hold else "wrong-name", first.offset, message)


def _needed_tests(node: Node, checked: CheckedExpression) -> list[NameTest]:
    """Return the tests of a part that holds only together with one of these tests; none in doubt."""
    parts = node.parts if isinstance(node, Logic) else (node,)
    are_plain = all(isinstance(part, Call) and part.function in _NEEDED for part in parts)
    tests = [list(name_tests(msgspec.structs.replace(checked, root=part))) for part in parts] if are_plain else []
    subjects = {frozenset(test.subject for test in found) for found in tests}
    return list(chain.from_iterable(tests)) if len(subjects) == 1 else []


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
            inner, before, after = parts_joined(tested)
            subject, change = _subject(inner, bound, checked)
            if subject in NAME_KINDS:
                if node.function in ("_==_", "@in") and subject not in _LISTS:
                    others = never_equal(tested, elements_of(given) if node.function == "@in" else (given,))
                    yield from (NameTest(subject, NEVER, unparse(part), part.pos) for part in others)
                for text, offset in _texts(given, bound):
                    plain = NameTest(subject, "", text, offset, change)
                    yield from (
                        _tests(node.function, plain)
                        if not before + after
                        else _unjoined(node.function, plain, before, after)
                    )


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


def _tests(function: str, found: NameTest) -> Iterator[NameTest]:
    if function in _TEST_KINDS:
        yield found._replace(test=_TEST_KINDS[function])
    elif function == "matches" and found.subject in WORDS:
        yield found._replace(test="pattern")
    elif function == "matches" and (pattern := patterns.find_string_test(found.text)):
        for text in pattern.texts:
            yield found._replace(test=pattern.kind, text=text)
    elif function == "matches" and (text := patterns.beginning(found.text)):
        yield found._replace(test="starts", text=text)
    elif function == "matches" and (text := patterns.required_text(found.text)):
        yield found._replace(test="contains", text=text)


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
    if isinstance(node, Call) and node.function in CASES and len(operands) == 1:
        return _subject(operands[0], bound, checked)[0], node.function
    if isinstance(node, Call) and node.function in CONVERSIONS and len(operands) == 1:
        return _subject(operands[0], bound, checked)
    return variable_name(node, checked), ""


def _texts(node: Node, bound: Mapping[str, Node]) -> Iterator[tuple[str, int]]:
    """Yield the constant texts that a node may be or hold, with their offsets."""
    if isinstance(node, Name) and node.name in bound:
        yield from _texts(bound[node.name], {})
    elif isinstance(node, ListOf | MapOf | Conditional):
        for part in (node.then, node.otherwise) if isinstance(node, Conditional) else elements_of(node):
            yield from _texts(part, bound)
    elif isinstance(node, Call) and node.function == "_+_" and (text := constant_text(node)) is None:
        for part in operands_of(node):
            yield from _texts(part, bound) if isinstance(part, ListOf | Call) else ()
    elif (text := constant_text(node)) is not None:
        yield text, node.pos


def _on_spelling(checked: CheckedExpression, check: NameCheck) -> Iterator[Remark]:
    """Yield a remark on the first test of a path that is no plain test, where a text of the rule may mean capitals.

    Trino sends names in lower case. For an object that nobody registered, a forbid is asked under the spelling of its
    plain tests, too. The spellings that another test means are not known.
    """
    others = {test.offset for test in name_tests(checked) if test.subject != "path"}
    others |= {compared.offset for compared in comparisons(checked) if compared.variable != "path"}
    if (offset := find_spelling(checked, others)) is not None:
        message = (
            "Trino sends names in lower case, and this test of `path` may mean capitals: it misses an object that "
            "nobody registered"
        )
        hint = "write plain tests, such as `path.startsWith('HR.')`, or a pattern in lower case"
        yield _remark(check, "path-spelling", offset, message, hint)
