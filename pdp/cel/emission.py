"""Generated code of functions, methods and operators, and the state of one emission.

Nothing of an expression is pasted into generated code. A literal reaches the code as a global name bound to its value.
The function sees no builtins. A `Fragment` is a piece of generated Python with the facts that decide how it is combined
with others. The state has static types, warnings, names of globals, and charges to the step budget inside macros.

Most calls follow the function table. Equality, membership, indexing and `matches` have shorter or faster forms if the
static types or constant arguments allow; each form gives the same result as the function in the table.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec

from pdp.cel import containers, patterns, values
from pdp.cel.checker import CheckedExpression, ResolvedCall, Variable
from pdp.cel.containers import LOOKUP_KEYS
from pdp.cel.functions import Overload, make_dispatcher
from pdp.cel.syntax import Call, Constant, Node, Select
from pdp.cel.types import Type
from pdp.cel.values import RuleError, require_bool

UNKNOWN: Final = object()
"""Value of a fragment that is not constant. None is a value of the language."""


class Fragment(msgspec.Struct, frozen=True):
    """Code of one expression.

    `raises` tells that the code may raise RuleError, budget errors aside. `value` is the value of a constant fragment.
    An `atom` needs no parentheses anywhere; a `test` needs none as an operand of `and` and `or`.
    """

    code: str
    raises: bool = False
    atom: bool = True
    value: Any = UNKNOWN
    test: bool = False

    @property
    def known(self) -> bool:
        """Tell whether the value is known at load."""
        return self.value is not UNKNOWN

    def __str__(self) -> str:
        return self.code if self.atom else f"({self.code})"

    @property
    def operand(self) -> str:
        """Return the code as an operand of `and` or `or`."""
        return self.code if self.test else str(self)


def comparison(code: str, raises: bool, test: bool = True) -> Fragment:
    """Return the fragment of a Python comparison, or with `test` off of comparisons joined by `and`."""
    return Fragment(code, raises, atom=False, test=test)


HELPERS: Final[dict[str, Callable[..., Any]]] = {
    "_all_of": values.all_of,
    "_any_of": values.any_of,
    "_exists": values.exists,
    "_every": values.every,
    "_fail": values.fail,
    "_budget": values.new_budget,
    "_take": values.charge_elements,
    "_grow": values.charge_copy,
    "_scan": values.charge_scan,
    "_fresh_pattern": values.charge_pattern,
    "_boolean": require_bool,
    "_equal": values.equal,
    "_unequal": values.unequal,
    "_contained": containers.in_container,
    "_in_list": containers.in_list,
    "_key_in_map": containers.in_map,
    "_index": containers.get_item,
    "_field": containers.get_field,
    "_has_field": containers.has_field,
    "_build_map": containers.build_map,
    "_keys": containers.map_keys,
    "_elements": containers.macro_elements,
    "_all": all,
    "_any": any,
    "_sum": sum,
    "_tuple": tuple,
}
"""Functions that generated code calls beyond those of the function table."""
_GLOBAL: Final = re.compile(r"\b_[a-z_]+\d*\b")


class GlobalNames:
    """Names and values of the globals of one generated function."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {"__builtins__": {}, **HELPERS}
        self._literals: dict[tuple[type, str], str] = {}

    def used_in(self, source: str) -> dict[str, Any]:
        """Return the globals that `source` mentions, and empty builtins."""
        names = ("__builtins__", *_GLOBAL.findall(source))
        return {name: self._values[name] for name in names if name in self._values}

    def bind(self, value: Any, prefix: str = "_k") -> str:
        """Bind `value` to a global name and return the name. Equal literals share one name."""
        # The key has the type and the text of a literal, because 1 == 1.0 == True and 0.0 == -0.0 in Python.
        key = (type(value), repr(value))
        if type(value) not in (str, int, float) or key not in self._literals:
            name = f"{prefix}{len(self._values) - len(HELPERS) - 1}"
            self._values[name] = value
            self._literals[key] = name
            return name
        return self._literals[key]

    def constant(self, value: Any) -> Fragment:
        """Return the fragment of a constant."""
        if value is None or value is True or value is False:
            return Fragment(str(value), value=value)
        return Fragment(self.bind(value), value=value)

    def fail(self, message: str) -> Fragment:
        """Return the fragment of an expression that always raises RuleError with `message`."""
        return Fragment(f"_fail({self.bind(message)})", raises=True)

    def fold(self, run: Callable[..., Any], args: Iterable[Fragment], limit: float = math.inf) -> Fragment | None:
        """Return the constant that `run` computes if all arguments are constants, or None.

        A computation that raises is not folded. The error belongs to the evaluation: logic around the expression may
        absorb the error, and an expression that is never reached must not fail. A text or list longer than `limit` is
        not kept in memory but computed by each evaluation.
        """
        args = tuple(args)
        if not all(arg.known for arg in args):
            return None
        try:
            value = run(*(arg.value for arg in args))
        except RuleError:
            return None
        return None if isinstance(value, (str, bytes, tuple)) and len(value) > limit else self.constant(value)


class EmitState:
    """State that the emitters of one expression share.

    `fields` gives keys that map variables always have, with the types of their values: reading these keys cannot raise.
    `warnings` are messages with offsets in the text. `macro_depth` is the number of macros around the current node.
    """

    def __init__(self, checked: CheckedExpression, fields: Mapping[tuple[str, str], Type]) -> None:
        self.checked = checked
        self.names = GlobalNames()
        self.warnings: list[tuple[str, int]] = []
        self.macro_depth = 0
        self._fields = fields

    def type(self, node: Node) -> Type:
        """Return the static type of a node."""
        return self._fields.get(self._field_key(node), self.checked.types[node])

    def always_present(self, node: Node) -> bool:
        """Tell whether `node` reads a key that a map variable always has."""
        return self._field_key(node) in self._fields

    def _field_key(self, node: Node) -> tuple[str, str]:
        """Return the variable and the key that `variable.key` or `variable['key']` reads, or two empty texts."""
        operand, key = None, None
        if isinstance(node, Select):
            operand, key = node.operand, node.field
        elif isinstance(node, Call) and node.function == "_[_]" and isinstance(node.args[1], Constant):
            operand, key = node.args[0], node.args[1].value
        meaning = self.checked.names.get(operand) if operand is not None else None
        return (meaning.name, key) if isinstance(meaning, Variable) and isinstance(key, str) else ("", "")

    def require_bool(self, fragment: Fragment, node: Node) -> Fragment:
        """Return the code of `node` as a bool, with a check at run time if the static type is not bool."""
        if self.type(node).kind == "bool" or isinstance(fragment.value, bool):
            return fragment
        return Fragment(f"_boolean({fragment.code})", raises=True)

    def charge_scan(self, fragment: Fragment) -> Fragment:
        """Return code that, inside a macro, also pays for a search or comparison of the value."""
        return self._charge("_scan", fragment)

    def charge_copy(self, fragment: Fragment) -> Fragment:
        """Return code that, inside a macro, also pays for the creation of the value."""
        return self._charge("_grow", fragment)

    def _charge(self, helper: str, fragment: Fragment) -> Fragment:
        if not self.macro_depth or fragment.known:
            return fragment
        return Fragment(f"{helper}(_b, {fragment.code})", fragment.raises)


_MAX_FOLDED: Final = 10_000
"""Most characters or items of a constant computed at load. Each evaluation computes a longer value anew."""
_ATOMIC_TEMPLATES: Final = frozenset({"{0}.startswith({1})", "{0}.endswith({1})"})
_PLAIN: Final = frozenset({"bool", "int", "uint", "string", "bytes", "null_type", "timestamp", "duration", "type"})
"""Kinds whose values Python's `==` compares like CEL, if both sides have the same kind."""
_EXACT: Final = frozenset({"string", "bytes", "null_type", "timestamp", "duration"})
"""Kinds that Python's `==` compares like CEL with any value: no value of another kind is ever equal."""
_HASHED: Final = frozenset({"int", "uint", "string", "bytes"})
"""Kinds whose constant lists become sets."""


def _has_plain_equality(type: Type) -> bool:
    """Tell whether Python's `==` is CEL's equality for two values of this type.

    Python compares the items of tuples by identity first, so that `[nan] == [nan]` holds, contrary to CEL: lists of
    doubles are excluded. So is every type with dyn inside, because `True == 1` holds in Python.
    """
    if type.kind == "list":
        return type.params[0].kind != "double" and _has_plain_equality(type.params[0])
    return type.kind in _PLAIN or type.kind == "double"


def _fits(overload: Overload, kinds: list[str]) -> bool:
    """Tell whether arguments of these static kinds fit without a choice at run time. dyn fits a type variable only."""
    return all(param.kind in ("?A", kind) for param, kind in zip(overload.params, kinds, strict=True))


class CallEmitter:
    """Emitter of calls, given the code of their arguments."""

    def __init__(self, state: EmitState) -> None:
        self._state = state
        self._names = state.names

    def emit(self, node: Call, args: list[Fragment]) -> Fragment:
        """Return the code of a call. `args` is the code of all arguments, a method's target first."""
        resolved = self._state.checked.calls[node]
        if not resolved.overloads:
            return self._names.fail(f"no such overload: {resolved.key[0]}")
        special = self._SPECIAL.get(resolved.key[0])
        if special is None:
            return self._table_call(resolved, args)
        fragment: Fragment = special(self, node, resolved, args)
        return fragment

    def _table_call(self, resolved: ResolvedCall, args: list[Fragment]) -> Fragment:
        """Call the only overload that the static types leave, or choose among several at run time."""
        kinds = [self._state.type(arg).kind for arg in resolved.args]
        fitting = [overload for overload in resolved.overloads if _fits(overload, kinds)]
        if len(fitting) == 1:
            return self._direct_call(resolved, fitting[0], args)
        run = make_dispatcher(resolved.key[0], resolved.overloads)
        folded = self._names.fold(run, args, _MAX_FOLDED)
        if folded:
            return folded
        fragment = Fragment(self._function_call(run, args), raises=True)
        # The result may be a number, so the charge is the one that takes a value of any kind.
        costly = any(overload.costly for overload in resolved.overloads)
        return self._state.charge_scan(fragment) if costly else fragment

    def _direct_call(self, resolved: ResolvedCall, overload: Overload, args: list[Fragment]) -> Fragment:
        folded = self._names.fold(overload.run, args, _MAX_FOLDED)
        if folded:
            return folded
        raises = overload.raises or any(arg.raises for arg in args)
        if overload.template == "{0}":
            fragment = args[0]
        elif overload.template:
            atom, test = overload.template in _ATOMIC_TEMPLATES, overload.result.kind == "bool"
            fragment = Fragment(overload.template.format(*args), raises, atom, test=test)
        else:
            fragment = Fragment(self._function_call(overload.run, args), raises)
        costly = any(other.costly for other in resolved.overloads)
        return self._state.charge_copy(fragment) if costly else fragment

    def _function_call(self, run: Callable[..., Any], args: Sequence[Fragment]) -> str:
        return f"{self._names.bind(run, '_f')}({', '.join(arg.code for arg in args)})"

    def _equality(self, node: Call, resolved: ResolvedCall, args: list[Fragment]) -> Fragment:
        same = node.function == "_==_"
        folded = self._names.fold(values.equal if same else values.unequal, args)
        if folded:
            return folded
        raises = args[0].raises or args[1].raises
        left, right = (self._state.type(arg) for arg in resolved.args)
        shallow = left == right and left.kind in _PLAIN
        if not shallow:
            args = [self._state.charge_scan(arg) for arg in args]
        if (left == right and _has_plain_equality(left)) or left.kind in _EXACT or right.kind in _EXACT:
            return comparison(f"{args[0]} {'==' if same else '!='} {args[1]}", raises)
        return Fragment(f"{'_equal' if same else '_unequal'}({args[0].code}, {args[1].code})", raises)

    def _membership(self, node: Call, resolved: ResolvedCall, args: list[Fragment]) -> Fragment:
        folded = self._names.fold(containers.in_container, args)
        if folded:
            return folded
        item, items = args
        left, right = (self._state.type(arg) for arg in resolved.args)
        raises = item.raises or items.raises
        if right.kind == "list" and left == right.params[0] and _has_plain_equality(right):
            return comparison(f"{item} {self._one_of(items, left)}", raises)
        if right.kind == "map":
            raises = raises or left.kind not in LOOKUP_KEYS
            return Fragment(f"_key_in_map({item.code}, {items.code})", raises)
        if right.kind == "list":
            return Fragment(f"_in_list({item.code}, {self._state.charge_scan(items).code})", raises)
        return Fragment(f"_contained({item.code}, {self._state.charge_scan(items).code})", raises=True)

    def _one_of(self, items: Fragment, element: Type) -> str:
        """Return the right side of a membership test by Python's `==`. A constant list becomes a set or one value."""
        if not items.known or element.kind not in _HASHED:
            return f"in {self._state.charge_scan(items)}"
        if len(items.value) == 1:
            return f"== {self._names.constant(items.value[0])}"
        return f"in {self._names.bind(frozenset(items.value), '_s')}"

    def _index(self, node: Call, resolved: ResolvedCall, args: list[Fragment]) -> Fragment:
        if self._state.always_present(node):
            return Fragment(f"{args[0]}[{args[1]}]", args[0].raises)
        folded = self._names.fold(containers.get_item, args)
        return folded or Fragment(f"_index({args[0].code}, {args[1].code})", raises=True)

    def _matches(self, node: Call, resolved: ResolvedCall, args: list[Fragment]) -> Fragment:
        text, pattern = args
        if not isinstance(pattern.value, str):
            return self._dynamic_match(resolved, text, pattern)
        plain = self._string_match(resolved, text, pattern.value)
        if plain:
            return plain
        try:
            compiled = patterns.compile_pattern(pattern.value)
        except RuleError as error:
            self._state.warnings.append((error.detail, resolved.args[1].pos))
            return self._names.fail(error.detail)
        if self._state.type(resolved.args[0]).kind != "string":
            return self._table_call(resolved, args)
        folded = self._names.fold(lambda known, _: compiled.find(known), args)
        if folded:
            return folded
        find = self._names.bind(compiled.find, "_m")
        return Fragment(f"{find}({self._state.charge_scan(text).code})", text.raises)

    def _string_match(self, resolved: ResolvedCall, text: Fragment, pattern: str) -> Fragment | None:
        """Return the code of a string test in place of a constant pattern. RE2 accepts every such pattern."""
        if text.known or self._state.type(resolved.args[0]).kind != "string":
            return None
        return self._string_test(text, patterns.find_string_test(pattern))

    def _dynamic_match(self, resolved: ResolvedCall, text: Fragment, pattern: Fragment) -> Fragment:
        """Match a pattern known at run time only. Inside a macro, each evaluation may compile another pattern."""
        if self._state.macro_depth:
            pattern = Fragment(f"_fresh_pattern(_b, {pattern.code})", pattern.raises)
        return self._table_call(resolved, [self._state.charge_scan(text), pattern])

    def _string_test(self, text: Fragment, test: patterns.StringTest | None) -> Fragment | None:
        """Return the code of a pattern that needs no regex, or None.

        A test for one line mentions the text twice, so the text must be a variable, which costs nothing to repeat.
        """
        if test is None or (test.one_line and not text.code.isidentifier()):
            return None
        code = self._string_test_code(text, test)
        if code is None:
            return None
        if test.one_line:
            code = f"{code} and {self._names.constant(chr(10))} not in {text}"
        return comparison(code, text.raises, not test.one_line)

    def _string_test_code(self, text: Fragment, test: patterns.StringTest) -> str | None:
        texts = test.texts
        first = self._names.constant(texts[0]).code
        if test.kind == "equals":
            return f"{text} == {first}" if len(texts) == 1 else f"{text} in {self._names.bind(frozenset(texts), '_s')}"
        if test.kind == "contains":
            return f"{first} in {text}" if len(texts) == 1 else None
        method = "startswith" if test.kind == "starts" else "endswith"
        return f"{text}.{method}({first if len(texts) == 1 else self._names.bind(texts)})"

    _SPECIAL: ClassVar[Mapping[str, Any]] = {
        "_==_": _equality,
        "_!=_": _equality,
        "@in": _membership,
        "_[_]": _index,
        "matches": _matches,
    }
