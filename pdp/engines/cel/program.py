"""Compiled rules: from the text of a rule to a native function, and the variables that a rule may mention.

Knows the variables of a check. The language itself is `pdp.cel`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final
from weakref import WeakValueDictionary

from pdp.cel.checker import CheckedExpression, Variable, check
from pdp.cel.compiler import Emitter, function_table, load_function
from pdp.cel.parser import parse
from pdp.cel.syntax import Call, Comprehension, Constant, Has, Node, Select
from pdp.cel.types import BOOL, DYN, INT, STRING, TIMESTAMP, Type, list_of, map_of
from pdp.cel.unparse import walk
from pdp.cel.values import RuleError
from pdp.engines.cel.conditions import (
    EVERY_ROLE,
    Condition,
    Requirements,
    path_tests,
    role_readings,
    shared_requirements,
    warehouses_of,
    words_of,
)
from pdp.engines.engine import ForbiddenPath, of_one_forbid
from pdp.model.answer import MISSING_ARGUMENT
from pdp.model.vocabulary import is_detail

RULE_VARIABLES: Final[Mapping[str, Type]] = {
    "op": STRING,
    "role": STRING,
    "roles": list_of(STRING),
    "ref": STRING,
    "path": STRING,
    "contentType": STRING,
    "type": STRING,
    "api": map_of(STRING, DYN),
    "actions": list_of(STRING),
    "delegated": BOOL,
    "warehouse": STRING,
    "action": STRING,
    "groups": list_of(STRING),
    "attributes": map_of(STRING, DYN),
    "properties": map_of(STRING, DYN),
    "now": TIMESTAMP,
    "arguments": map_of(STRING, STRING),
}
"""The variables that a rule may mention, in the order of the arguments of `Program.evaluate`."""
RULE_FIELDS: Final = {("api", "apiName"): STRING, ("api", "apiVersion"): INT}
"""Keys that map variables always have, with the types of the values. The checker gives `dyn` to all values of `api`."""
RULE_ARGUMENTS: Final = {name: name for name in RULE_VARIABLES} | {EVERY_ROLE: "every_role"}
"""The parameter of the generated function for each variable."""
_PARTIAL: Final = frozenset({"arguments"})
"""Variables of which a check may leave keys unknown."""
_COUNTING: Final = (RULE_ARGUMENTS[EVERY_ROLE], *RULE_VARIABLES)
"""The parameters of a forbid that counts roles by any evidence."""
MISSING_REFERENCE: Final = "missing_reference"
"""The error that a rule raises for `ref` where no ref is known."""
PATH: Final = "path"
"""The variable without a value where a check lacks the name or the destination of what is made or moved."""
CONTENT: Final = "contentType"
"""The variable without a value, for forbids, where a check names content of no type."""
NO_REF: Final = frozenset({"ref"})
DETAILS: Final = "actions.details"
"""The unknown words of `actions` where a check does not tell what it updates."""
_MISSING: Final = {
    "ref": MISSING_REFERENCE, PATH: MISSING_ARGUMENT, "roles": "unknown_roles", EVERY_ROLE: "unknown_roles",
    "groups": "unknown_groups", "attributes": "unknown_attributes", "actions": "unknown_actions",
    CONTENT: "unknown_content_type",
}  # fmt: skip
"""Variables without a value in a check -> the error of a rule on such a variable."""
_NO_KEYS: Final[frozenset[str]] = frozenset()
"""One set for all programs: each new empty set takes 216 bytes."""
_MAX_LAZY_DEPTH: Final = 24
"""Most levels of a rule whose function is not made at load. CPython's compiler accepts far more levels, so that a rule
with too many levels for the compiler is an error of the load."""


class Program:
    """A checked rule and, once needed, its function.

    `requirements` are necessary conditions of the rule. A rule that is the sum of its conditions, with at most one on
    the path, is decided by selection and tables. Only explanations and lint need the function of such a rule, so it is
    made on first use. The function of any other rule is made at load: no request waits for that.
    """

    __slots__ = (
        "__weakref__",
        "_function",
        "_path_texts",
        "_without",
        "details",
        "extensions",
        "keys",
        "loops",
        "requirements",
        "text",
        "variables",
    )
    counts_roles = False
    """The functions take roles by any evidence as the first argument."""

    def __init__(self, text: str, extensions: frozenset[str], readings: tuple[CheckedExpression, ...]) -> None:
        self.text = text
        self.extensions = extensions
        checked = readings[0]
        names = [name for reading in readings for name in reading.names.values()]
        self.variables = _intern(frozenset({name.name for name in names if type(name) is Variable}))
        self.requirements = shared_requirements(readings)
        self._function: Callable[..., bool] | None = None
        self._without: dict[frozenset[str], Callable[..., bool]] | None = None
        self._path_texts: tuple[ForbiddenPath, ...] | None = None
        self.keys = _keys_read(checked, "attributes") if "attributes" in self.variables else _NO_KEYS
        """Keys of `attributes` in the rule; None for any key."""
        words = _keys_read(checked, "actions") if "actions" in self.variables else _NO_KEYS
        self.details = words is None or any(map(is_detail, words))
        """The rule reads what an update changes."""
        if not _is_decided_by_tables(self.requirements) or checked.root.depth > _MAX_LAZY_DEPTH:
            self._function = self._load(readings)
        self.loops = self._function is not None and any(isinstance(node, Comprehension) for node in walk(checked.root))
        """An evaluation may take long: it has macros."""

    def readings(self) -> tuple[CheckedExpression, ...]:
        """Return the rule, checked again; a rule of several readings is true where one of them is."""
        return (check_rule(self.text, self.extensions),)

    @property
    def evaluate(self) -> Callable[..., bool]:
        """Return the function: the values of RULE_VARIABLES in order -> a bool. The function raises RuleError only."""
        if self._function is None:
            self._function = self._load(self.readings())
        return self._function

    @property
    def code(self) -> str:
        """Return the generated source with the constants of the rule, for a reader."""
        emitter, source = _emit_rule(check_rule(self.text, self.extensions))
        return source + "".join(_legend(emitter.globals_of(source)))

    @property
    def warnings(self) -> tuple[tuple[str, int], ...]:
        """Return messages on parts that always raise, with offsets into the text."""
        emitter, _ = _emit_rule(check_rule(self.text, self.extensions))
        return emitter.warnings

    def path_texts(self) -> tuple[ForbiddenPath, ...]:
        """Return the texts that a rule compares with `path`; in doubt too many. The first call may cost a parse."""
        if self._path_texts is None:
            self._path_texts = of_one_forbid(self.text, self._read_path_texts())
        return self._path_texts

    def _read_path_texts(self) -> Iterator[ForbiddenPath]:
        conditions: Iterable[Condition] = self.requirements.conditions
        words: Iterable[str] = ()
        if not self.requirements.sufficient and "path" in self.variables:
            checked = check_rule(self.text, self.extensions)
            conditions, words = path_tests(checked), words_of(checked)
        warehouses = warehouses_of(self.requirements.conditions)
        for condition in conditions:
            if condition.variable == "path" and condition.kind != "holds":
                yield from (ForbiddenPath(text, warehouses, condition.kind) for text in sorted(condition.texts))
        yield from (ForbiddenPath(word, warehouses, "parts") for word in sorted(words))

    def names_warehouse(self, warehouse: str) -> bool:
        """Tell whether the rule may be true or false by the name of a warehouse."""
        named = warehouses_of(self.requirements.conditions)
        return "warehouse" in self.variables and (named is None or warehouse in named)

    def lacking(self, unknown: Iterable[str]) -> frozenset[str]:
        """Return the variables of the rule without a value because of unknown evidence, path or update.

        An unknown attribute leaves `attributes` without a value for the rules on this attribute.
        """
        found = set()
        for name in unknown:
            variable, _, key = name.partition(".")
            is_read = self.details if name == DETAILS else not key or self.keys is None or key in self.keys
            if variable in self.variables and is_read:
                found.add(variable)
        return frozenset(found)

    @property
    def evidence(self) -> frozenset[str]:
        """Return the evidence read by the rule: `roles`, `groups`, `attributes` or single attributes."""
        lists = self.variables & {"roles", "groups"} | ({"roles"} if self.counts_roles else set())
        if "attributes" not in self.variables:
            return lists
        return lists | ({"attributes"} if self.keys is None else {f"attributes.{key}" for key in self.keys})

    def without(self, lacking: frozenset[str]) -> Callable[..., bool]:
        """Return the function for checks without a value of `lacking` variables: any use raises."""
        lacking &= self.variables
        if not lacking:
            return self.evaluate
        if self._without is None:
            self._without = {}
        function = self._without.get(lacking)
        if function is None:
            function = self._without[lacking] = self._load(self.readings(), missing_errors(lacking))
        return function

    def bound(self, every_role: tuple[str, ...], lacking: frozenset[str]) -> Callable[..., bool]:
        """Return the function of RULE_VARIABLES, for roles by any evidence, and without a value of `lacking`."""
        function = self.without(lacking)
        return partial(function, every_role) if self.counts_roles else function

    def _load(
        self, readings: tuple[CheckedExpression, ...], missing: Mapping[str, str] | None = None
    ) -> Callable[..., bool]:
        parameters = _COUNTING if self.counts_roles else RULE_VARIABLES
        return _any_true([_load_rule(checked, parameters, missing) for checked in readings])


class RoleForbid(Program):
    """Forbid with a test of `roles` that counts roles by any evidence: see `role_readings`."""

    __slots__ = ()
    counts_roles = True

    def readings(self) -> tuple[CheckedExpression, ...]:
        """Return the readings of the rule."""
        return role_readings(check_rule(self.text, self.extensions))


_FORBIDS: Final[WeakValueDictionary[tuple[str, frozenset[str]], Program]] = WeakValueDictionary()
"""Forbids of living rule sets that count roles."""


def forbid_program(program: Program) -> Program:
    """Return a rule as a forbid: the same one if no test counts roles by any evidence."""
    if "roles" not in program.variables:
        return program
    key = program.text, program.extensions
    forbid = _FORBIDS.get(key)
    if forbid is None:
        readings = role_readings(check_rule(*key))
        counts = any(Variable(EVERY_ROLE) in reading.names.values() for reading in readings)
        forbid = _FORBIDS[key] = RoleForbid(*key, readings) if counts else program
    return forbid


_PROGRAMS: Final[dict[frozenset[str], WeakValueDictionary[str, Program]]] = {}
"""By extensions and text, the programs of living rule sets: a new set compiles nothing but its new texts, and a program
ends with its last set."""


def compile_program(text: str, extensions: frozenset[str] = frozenset()) -> Program:
    """Check the types of the rule `text` and compile the rule, or return the program of an equal rule in use.

    Raise CompileError if the rule is not valid.
    """
    programs = _PROGRAMS.get(extensions)
    if programs is None:
        programs = _PROGRAMS.setdefault(extensions, WeakValueDictionary())
    program = programs.get(text)
    if program is None:
        program = programs[text] = Program(text, extensions, (check_rule(text, extensions),))
    return program


def check_rule(text: str, extensions: frozenset[str]) -> CheckedExpression:
    """Parse the rule `text` and check the types.

    Raise CompileError if the rule is not valid.
    """
    return check(parse(text), RULE_VARIABLES, function_table(extensions))


def missing_errors(variables: Iterable[str]) -> dict[str, str]:
    """Return the errors of variables without a value."""
    return {name: _MISSING[name] for name in variables if name in _MISSING}


def _keys_read(checked: CheckedExpression, name: str) -> frozenset[str] | None:
    """Return the keys of a map read by an expression; None for any key."""
    uses, keys = 0, []
    for node in walk(checked.root):
        uses += _is_variable(node, name, checked)
        if isinstance(node, Select | Has) and _is_variable(node.operand, name, checked):
            keys.append(node.field)
        elif isinstance(node, Call) and node.target is None and len(node.args) == 2:
            at = {"_[_]": 0, "@in": 1}.get(node.function)
            if at is not None and _is_variable(node.args[at], name, checked):
                key = node.args[1 - at]
                keys += [key.value] if isinstance(key, Constant) and isinstance(key.value, str) else []
    return frozenset(keys) if len(keys) == uses else None


def _is_variable(node: Node, name: str, checked: CheckedExpression) -> bool:
    meaning = checked.names.get(node)
    return type(meaning) is Variable and meaning.name == name


def rule_emitter(checked: CheckedExpression, missing: Mapping[str, str] | None = None) -> Emitter:
    """Return the emitter of a rule, or of a part. `missing` are variables without a value, with their errors."""
    return Emitter(checked, RULE_ARGUMENTS, RULE_FIELDS, missing, _PARTIAL)


def _emit_rule(
    checked: CheckedExpression, parameters: Iterable[str] = RULE_VARIABLES, missing: Mapping[str, str] | None = None
) -> tuple[Emitter, str]:
    emitter = rule_emitter(checked, missing)
    return emitter, emitter.emit_function("rule", parameters, wants_bool=True)


def _load_rule(
    checked: CheckedExpression, parameters: Iterable[str], missing: Mapping[str, str] | None = None
) -> Callable[..., bool]:
    emitter, source = _emit_rule(checked, parameters, missing)
    return load_function(source, "rule", emitter)


def _any_true(functions: Sequence[Callable[..., bool]]) -> Callable[..., bool]:
    """Return the function that is true where a function of two, or the only one, is, whatever the other raises."""
    if len(functions) == 1:
        return functions[0]
    first, second = functions

    def rule(*arguments: Any) -> bool:
        try:
            if first(*arguments):
                return True
        except RuleError:
            if second(*arguments):
                return True
            raise
        return second(*arguments)

    return rule


def _is_decided_by_tables(requirements: Requirements) -> bool:
    on_path = [condition for condition in requirements.conditions if condition.variable == "path"]
    return requirements.sufficient and len(on_path) <= 1


@lru_cache(maxsize=4096)
def _intern(variables: frozenset[str]) -> frozenset[str]:
    """Return the same object for equal sets of variables: large rule sets use few sets."""
    return variables


def _legend(scope: Mapping[str, Any]) -> list[str]:
    """Return the bound constants as comments for a reader. Callers add the comments after compiling the source."""
    return [f"# {name} = {_constant_text(value)}\n" for name, value in scope.items() if name[-1].isdigit()]


def _constant_text(value: Any) -> str:
    if isinstance(value, frozenset):
        return f"{{{', '.join(map(repr, sorted(value)))}}}"
    if callable(value):
        return str(getattr(value, "__qualname__", value))
    return repr(value)
