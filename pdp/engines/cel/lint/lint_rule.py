"""Rules for lint: the text with places in the file, the checked tree, and the model for searches."""

from __future__ import annotations

from typing import NamedTuple

from pdp.cel.checker import CheckedExpression, check
from pdp.cel.compiler import function_table
from pdp.cel.parser import parse
from pdp.cel.syntax import CompileError, Comprehension
from pdp.cel.unparse import walk
from pdp.engines.cel.lint import remarks
from pdp.engines.cel.lint.formula import formula_of
from pdp.engines.cel.lint.reach import RuleModel
from pdp.engines.cel.lint.remarks import Remark
from pdp.engines.cel.program import RULE_VARIABLES, compile_program
from pdp.engines.cel.sources import RuleText


class LintRule(NamedTuple):
    """A valid rule."""

    source: RuleText
    checked: CheckedExpression
    model: RuleModel

    @property
    def is_test(self) -> bool:
        """Tell whether the result can be a bool. Any other rule always raises."""
        return self.checked.types[self.checked.root].kind in ("bool", "dyn")


def analyze_rule(rule: RuleText, extensions: frozenset[str]) -> LintRule | Remark:
    """Compile a rule. Return a remark with the reason if the rule does not compile."""
    parsed = False
    try:
        root = parse(rule.text)
        parsed = True
        checked = check(root, RULE_VARIABLES, function_table(extensions))
        program = compile_program(rule.text, extensions)
    except CompileError as error:
        return _remark_on_error(rule, error, parsed)
    has_macro = any(isinstance(node, Comprehension) for node in walk(root))
    return LintRule(rule, checked, RuleModel(rule.id, program, formula_of(checked), exact=not has_macro))


def _remark_on_error(rule: RuleText, error: CompileError, parsed: bool) -> Remark:
    escape = rule.text[error.offset : error.offset + 2]
    if not parsed and rule.file.endswith(".properties") and escape[:1] == "\\":
        hint = f"properties files halve backslashes: write `\\\\\\{escape}`, or a class such as `[.]`"
        return Remark("properties-escape", error.offset, error.message, hint)
    return remarks.remark_on_error(rule.text, error.offset, error.message, parsed)
