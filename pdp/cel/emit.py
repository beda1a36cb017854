"""A checked tree to Python source: one expression over the variables, with names and literals bound, never pasted.

A piece of code knows whether it may raise and, where all below it is constant, its value. Logic whose parts cannot
raise, or of which one part can, is Python's own `and` and `or`: evaluated last, that part decides or raises exactly
where absorption would have it. Only two parts that may raise need the absorbing form.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from pdp.cel import patterns, values
from pdp.cel.checker import CheckedExpression, LocalName, ResolvedCall, UndeclaredName, Variable
from pdp.cel.fragments import (
    ATOMIC,
    EXACT,
    HASHED,
    HELPERS,
    MACROS,
    PLAIN_EQUAL,
    Fragment,
    comparison,
    fits,
    plain_equal,
    shared_dispatcher,
)
from pdp.cel.syntax import (
    Call,
    Comprehension,
    Conditional,
    Constant,
    Has,
    ListOf,
    Logic,
    MapOf,
    Name,
    Node,
    Select,
)
from pdp.cel.types import Type
from pdp.cel.values import RuleError, TypeName

_MAX_FOLDED: Final = 10_000
"""Length of a text or list computed at load: what is longer is made anew by each evaluation, and not kept."""
_GLOBAL: Final = re.compile(r"\b_[a-z_]+\d*\b")


class Emitter:
    """Emits one tree.

    `arguments` names the Python parameter of each variable, `missing` those that must raise and why. `fields` are map
    variables which always hold these keys, with values of these types: reading them cannot raise.
    """

    def __init__(
        self,
        checked: CheckedExpression,
        arguments: Mapping[str, str],
        fields: Mapping[tuple[str, str], Type] | None = None,
        missing: Mapping[str, str] | None = None,
    ) -> None:
        self.checked = checked
        self.arguments = arguments
        self.fields = fields or {}
        self.missing = missing or {}
        self.bound: dict[str, Any] = {"__builtins__": {}, **HELPERS}
        self.constants: dict[tuple[type, str], str] = {}
        self.warnings: list[tuple[str, int]] = []
        self.loops: dict[Comprehension, str] = {}
        self.inside = 0

    def emit(self, node: Node) -> Fragment:
        piece: Fragment = _EMITTERS[type(node)](self, node)
        return piece

    def emit_function(self, name: str, parameters: Iterable[str], wants_bool: bool) -> str:
        """The whole generated source."""
        piece = self.emit(self.checked.root)
        if wants_bool:
            piece = self.as_bool(piece, self.checked.root)
        start = "    _b = _budget()\n" if self.loops else ""
        return f"def {name}({', '.join(parameters)}):\n{start}    return {piece.code}\n"

    def globals_of(self, source: str) -> dict[str, Any]:
        """What `source` needs to run, and nothing that it does not mention."""
        return {name: self.bound[name] for name in ("__builtins__", *_GLOBAL.findall(source)) if name in self.bound}

    def type(self, node: Node) -> Type:
        return self.fields.get(self.field_key(node), self.checked.types[node])

    def field_key(self, node: Node) -> tuple[str, str]:
        """The variable and the key that `variable.key` or `variable['key']` reads, if that is what `node` is."""
        operand, key = None, None
        if isinstance(node, Select):
            operand, key = node.operand, node.field
        elif isinstance(node, Call) and node.function == "_[_]" and isinstance(node.args[1], Constant):
            operand, key = node.args[0], node.args[1].value
        meaning = self.checked.names.get(operand) if operand is not None else None
        return (meaning.name, key) if isinstance(meaning, Variable) and isinstance(key, str) else ("", "")

    def bind(self, value: Any, prefix: str = "_k") -> str:
        """A global name for a value; equal literals share one."""
        key = (type(value), repr(value))
        if type(value) not in (str, int, float) or key not in self.constants:
            name = f"{prefix}{len(self.bound) - len(HELPERS) - 1}"
            self.bound[name] = value
            self.constants[key] = name
            return name
        return self.constants[key]

    def known(self, value: Any) -> Fragment:
        if value is None or value is True or value is False:
            return Fragment(str(value), value=value)
        return Fragment(self.bind(value), value=value)

    def fold(self, run: Callable[..., Any], pieces: Iterable[Fragment], limit: float = math.inf) -> Fragment | None:
        """The result over constants; None where there is none: an error stays an error of the evaluation."""
        pieces = tuple(pieces)
        if not all(piece.known for piece in pieces):
            return None
        try:
            value = run(*(piece.value for piece in pieces))
            return None if isinstance(value, (str, bytes, tuple)) and len(value) > limit else self.known(value)
        except RuleError:
            return None

    def fail(self, message: str) -> Fragment:
        return Fragment(f"_fail({self.bind(message)})", raises=True)

    def as_bool(self, piece: Fragment, node: Node) -> Fragment:
        if self.type(node).kind == "bool" or isinstance(piece.value, bool):
            return piece
        return Fragment(f"_boolean({piece.code})", raises=True)

    def scanned(self, piece: Fragment) -> Fragment:
        """Searched or compared inside a macro: paid for by length."""
        if not self.inside or piece.known:
            return piece
        return Fragment(f"_scan(_b, {piece.code})", piece.raises)

    def grown(self, piece: Fragment) -> Fragment:
        """Made inside a macro: paid for by length."""
        if not self.inside or piece.known:
            return piece
        return Fragment(f"_grow(_b, {piece.code})", piece.raises)

    def constant(self, node: Constant) -> Fragment:
        return self.known(node.value)

    def name(self, node: Node) -> Fragment:
        meaning = self.checked.names[node]
        if isinstance(meaning, LocalName):
            return Fragment(self.loops[meaning.node])
        if isinstance(meaning, UndeclaredName):
            return self.fail(f"undeclared reference to `{meaning.name}`")
        if isinstance(meaning, TypeName):
            return self.known(meaning)
        assert isinstance(meaning, Variable)
        if meaning.name in self.missing:
            return self.fail(self.missing[meaning.name])
        return Fragment(self.arguments[meaning.name])

    def select(self, node: Select) -> Fragment:
        if node in self.checked.names:
            return self.name(node)
        operand, field = self.emit(node.operand), self.known(node.field)
        if self.field_key(node) in self.fields:
            return Fragment(f"{operand}[{field}]", operand.raises)
        folded = self.fold(values.field, (operand, field))
        return folded or Fragment(f"_field({operand.code}, {field.code})", raises=True)

    def has(self, node: Has) -> Fragment:
        operand, field = self.emit(node.operand), self.known(node.field)
        folded = self.fold(values.has_field, (operand, field))
        if folded:
            return folded
        if self.type(node.operand).kind == "map":
            return comparison(f"{field.code} in {operand}", operand.raises)
        return Fragment(f"_has_field({operand.code}, {field.code})", raises=True)

    def logic(self, node: Logic) -> Fragment:
        parts = [self.as_bool(self.emit(part), part) for part in node.parts]
        if any(part.value is not node.conjunction and part.known for part in parts):
            return self.known(not node.conjunction)
        calm = [part for part in parts if not part.raises and not part.known]
        risky = [part for part in parts if part.raises]
        if len(risky) > 1:
            absorbing = "_all_of" if node.conjunction else "_any_of"
            risky = [Fragment(f"{absorbing}({', '.join(f'lambda: {part.code}' for part in risky)})", raises=True)]
        parts = calm + risky
        if len(parts) < 2:
            return parts[0] if parts else self.known(node.conjunction)
        word = " and " if node.conjunction else " or "
        return Fragment(word.join(part.operand for part in parts), bool(risky), atom=False)

    def conditional(self, node: Conditional) -> Fragment:
        condition = self.as_bool(self.emit(node.condition), node.condition)
        then, otherwise = self.emit(node.then), self.emit(node.otherwise)
        if condition.known:
            return then if condition.value else otherwise
        raises = condition.raises or then.raises or otherwise.raises
        return Fragment(f"{then} if {condition} else {otherwise}", raises, atom=False)

    def list_of(self, node: ListOf) -> Fragment:
        items = [self.emit(item) for item in node.items]
        folded = self.fold(lambda *known: known, items)
        if folded:
            return folded
        code = "".join(f"{item.code}, " if item.atom else f"{item}, " for item in items)
        return self.grown(Fragment(f"({code})", any(item.raises for item in items)))

    def map_of(self, node: MapOf) -> Fragment:
        pairs = [(self.emit(key), self.emit(value)) for key, value in node.entries]
        flat = [piece for pair in pairs for piece in pair]
        folded = self.fold(lambda *known: values.build_map(zip(known[::2], known[1::2], strict=True)), flat)
        if folded:
            return folded
        names = [key.value for key, _ in pairs]
        if all(isinstance(name, str) for name in names) and len(set(names)) == len(names):
            code = ", ".join(f"{key}: {value}" for key, value in pairs)
            return self.grown(Fragment(f"{{{code}}}", any(piece.raises for piece in flat)))
        code = "".join(f"({key}, {value}), " for key, value in pairs)
        return self.grown(Fragment(f"_build_map(({code}))", raises=True))

    def comprehension(self, node: Comprehension) -> Fragment:
        items = self.items(node.range)
        name = self.loops[node] = f"_v{len(self.loops)}"
        self.inside += 1
        body = self.emit(node.body)
        where = None if node.where is None else self.as_bool(self.emit(node.where), node.where)
        if node.macro != "map":
            body = self.as_bool(body, node.body)
        self.inside -= 1
        return MACROS[node.macro](name, items, body, where)

    def items(self, range: Node) -> Fragment:
        piece = self.emit(range)
        kind = self.type(range).kind
        code = {"list": piece.code, "map": f"_keys({piece.code})"}.get(kind, f"_elements({piece.code})")
        return Fragment(f"_take(_b, {code})", piece.raises or kind not in ("list", "map"))

    def call(self, node: Call) -> Fragment:
        resolved = self.checked.calls[node]
        args = [self.emit(arg) for arg in resolved.args]
        if not resolved.overloads:
            return self.fail(f"no such overload: {resolved.key[0]}")
        special = _SPECIAL.get(resolved.key[0])
        if special is not None:
            piece: Fragment = special(self, node, resolved, args)
            return piece
        return self.overloaded(resolved, args)

    def overloaded(self, resolved: ResolvedCall, args: list[Fragment]) -> Fragment:
        """A call of the function table: direct where the types leave one overload, else by kind at run time."""
        kinds = [self.type(arg).kind for arg in resolved.args]
        fitting = [overload for overload in resolved.overloads if fits(overload, kinds)]
        direct = len(fitting) == 1
        overload = fitting[0] if direct else resolved.overloads[0]
        run = overload.run if direct else shared_dispatcher(resolved.key[0], resolved.overloads)
        folded = self.fold(run, args, _MAX_FOLDED)
        if folded:
            return folded
        grows = any(overload.costly for overload in resolved.overloads)
        raises = not direct or overload.raises or any(arg.raises for arg in args)
        if direct and overload.template:
            code, atom = overload.template.format(*args), overload.template in ATOMIC
            test = overload.result.kind == "bool"
            piece = args[0] if overload.template == "{0}" else Fragment(code, raises, atom, test=test)
        else:
            piece = Fragment(f"{self.bind(run, '_f')}({', '.join(arg.code for arg in args)})", raises)
        if not direct and grows:
            return self.scanned(piece)
        return self.grown(piece) if grows else piece

    def equality(self, node: Call, resolved: ResolvedCall, args: list[Fragment]) -> Fragment:
        same = node.function == "_==_"
        folded = self.fold(values.equal if same else values.unequal, args)
        if folded:
            return folded
        raises = args[0].raises or args[1].raises
        left, right = (self.type(arg) for arg in resolved.args)
        shallow = left == right and left.kind in PLAIN_EQUAL
        if not shallow:
            args = [self.scanned(arg) for arg in args]
        if (left == right and plain_equal(left)) or left.kind in EXACT or right.kind in EXACT:
            return comparison(f"{args[0]} {'==' if same else '!='} {args[1]}", raises)
        return Fragment(f"{'_equal' if same else '_unequal'}({args[0].code}, {args[1].code})", raises)

    def membership(self, node: Call, resolved: ResolvedCall, args: list[Fragment]) -> Fragment:
        folded = self.fold(values.contained, args)
        if folded:
            return folded
        item, items = args
        left, right = (self.type(arg) for arg in resolved.args)
        raises = item.raises or items.raises
        if right.kind == "list" and left == right.params[0] and plain_equal(right):
            return comparison(f"{item} {self.one_of(items, left)}", raises)
        if right.kind == "map":
            raises = raises or left.kind not in values.LOOKUP_KEYS
            return Fragment(f"_key_in_map({item.code}, {items.code})", raises)
        if right.kind == "list":
            return Fragment(f"_in_list({item.code}, {self.scanned(items).code})", raises)
        return Fragment(f"_contained({item.code}, {self.scanned(items).code})", raises=True)

    def one_of(self, items: Fragment, element: Type) -> str:
        """`in` a list, where Python's `==` is the language's: a constant list is a set, of one element a value."""
        if not items.known or element.kind not in HASHED:
            return f"in {self.scanned(items)}"
        if len(items.value) == 1:
            return f"== {self.known(items.value[0])}"
        return f"in {self.bind(frozenset(items.value), '_s')}"

    def at(self, node: Call, resolved: ResolvedCall, args: list[Fragment]) -> Fragment:
        if self.field_key(node) in self.fields:
            return Fragment(f"{args[0]}[{args[1]}]", args[0].raises)
        folded = self.fold(values.index, args)
        return folded or Fragment(f"_index({args[0].code}, {args[1].code})", raises=True)

    def matches(self, node: Call, resolved: ResolvedCall, args: list[Fragment]) -> Fragment:
        text, pattern = args
        if not isinstance(pattern.value, str):
            fresh = Fragment(f"_fresh_pattern(_b, {pattern.code})", pattern.raises) if self.inside else pattern
            return self.overloaded(resolved, [self.scanned(text), fresh])
        try:
            compiled = patterns.compile_pattern(pattern.value)
        except RuleError as error:
            self.warnings.append((str(error), resolved.args[1].pos))
            return self.fail(str(error))
        if self.type(resolved.args[0]).kind != "string":
            return self.overloaded(resolved, args)
        folded = self.fold(lambda known, _: compiled.find(known), args)
        simple = None if folded else self.shaped(text, patterns.find_string_test(pattern.value))
        return folded or simple or Fragment(f"{self.bind(compiled.find, '_m')}({self.scanned(text).code})", text.raises)

    def shaped(self, text: Fragment, shape: patterns.StringTest | None) -> Fragment | None:
        """A pattern that is really equality, a prefix, a suffix or a part."""
        if shape is None or (shape.one_line and not text.code.isidentifier()):
            return None
        code = self.shape_test(text, shape)
        if code is None:
            return None
        if shape.one_line:
            code = f"{code} and {self.known(chr(10))} not in {text}"
        return comparison(code, text.raises, not shape.one_line)

    def shape_test(self, text: Fragment, shape: patterns.StringTest) -> str | None:
        texts = shape.texts
        one = self.known(texts[0]).code
        if shape.kind == "equals":
            return f"{text} == {one}" if len(texts) == 1 else f"{text} in {self.bind(frozenset(texts), '_s')}"
        if shape.kind == "contains":
            return f"{one} in {text}" if len(texts) == 1 else None
        method = "startswith" if shape.kind == "starts" else "endswith"
        return f"{text}.{method}({one if len(texts) == 1 else self.bind(texts)})"


_SPECIAL: Final[dict[str, Any]] = {
    "_==_": Emitter.equality,
    "_!=_": Emitter.equality,
    "@in": Emitter.membership,
    "_[_]": Emitter.at,
    "matches": Emitter.matches,
}
_EMITTERS: Final[dict[type, Any]] = {
    Constant: Emitter.constant,
    Name: Emitter.name,
    Select: Emitter.select,
    Has: Emitter.has,
    Call: Emitter.call,
    Logic: Emitter.logic,
    Conditional: Emitter.conditional,
    ListOf: Emitter.list_of,
    MapOf: Emitter.map_of,
    Comprehension: Emitter.comprehension,
}
