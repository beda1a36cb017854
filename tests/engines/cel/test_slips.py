"""Words and signs of other languages: the error keeps its place, and the hint says what CEL has instead."""

from __future__ import annotations

import pytest

from pdp.engines.cel.lint.check_bindings import analyze_rule
from pdp.engines.cel.lint.remarks import Remark
from pdp.engines.cel.program import compile_program
from pdp.engines.cel.rules import inline_rules
from pdp.engines.cel.sources import inline_rule
from pdp.errors import RuleCompileError

ROLES = "`role` is the name of the user"
SLIPS = [
    # slip, offset, part of the hint, the rule as it is meant
    ("role not in ['a']", 5, "`!(a in b)`", "!(role in ['a'])"),
    ("role == 'a' and ref == 'x'", 12, "`&&`", "role == 'a' && ref == 'x'"),
    ("role == 'a'\n  AND ref == 'x'", 14, "`&&`", "role == 'a' && ref == 'x'"),
    ("role == 'a' or ref == 'x'", 12, "`||`", "role == 'a' || ref == 'x'"),
    ("not (role == 'a')", 0, "`!`", "!(role == 'a')"),
    ("not(role == 'a')", 0, "`!`", "!(role == 'a')"),
    ("NOT role == 'a'", 4, "`!`", "!(role == 'a')"),
    ("role !in ['a']", 5, "`!(a in b)`", "!(role in ['a'])"),
    ("role = 'a'", 5, "`==`", "role == 'a'"),
    ("role='a'", 4, "`==`", "role == 'a'"),
    ("role === 'a'", 7, "`==`", "role == 'a'"),
    ("role !== 'a'", 7, "`!=`", "role != 'a'"),
    ("role <> 'a'", 6, "`!=`", "role != 'a'"),
    ("role =~ 'a'", 5, "`x.matches('a')`", "role.matches('a')"),
    ("role ==~ 'a'", 7, "`x.matches('a')`", "role.matches('a')"),
    ("role ~ 'a'", 5, "`x.matches('a')`", "role.matches('a')"),
    ("role !~ 'a'", 5, "`!x.matches('a')`", "!role.matches('a')"),
    ("role == \u2018a\u2019", 8, "straight quotes", "role == 'a'"),
    ("role == \u201ca\u201d", 8, "straight quotes", "role == 'a'"),
    ('role == "a\u201d', 8, "no end", "role == 'a'"),
    ("role like 'a%'", 5, "`x.startsWith('a')`", "role.startsWith('a')"),
    ("role is null", 5, "`== null`", "dyn(role) == null"),
    ("attributes.a IS NOT NULL", 13, "`!= null`", "attributes.a != null"),
    ("role matches 'a'", 5, "`x.matches('a')`", "role.matches('a')"),
    ("role contains 'a'", 5, "`x.contains('a')`", "role.contains('a')"),
    ("role startswith 'a'", 5, "`x.startsWith('a')`", "role.startsWith('a')"),
    ("delegated & role == 'a'", 10, "`&&`", "delegated && role == 'a'"),
    ("delegated | role == 'a'", 10, "`||`", "delegated || role == 'a'"),
    ("role in ('a', 'b')", 12, "`in ['a', 'b']`", "role in ['a', 'b']"),
    ("role in('a','b')", 11, "`in ['a', 'b']`", "role in ['a', 'b']"),
    ("role in ('a')", 0, "`in ['a', 'b']`", "role in ['a']"),
    ("'a' IN roles", 4, "`in`, in small", "'a' in roles"),
    ("role == 'a';", 11, "leave out `;`", "role == 'a'"),
    ("role == 'a' &&", 14, "behind `&&`", "role == 'a' && delegated"),
    ("(role == 'a' || \n", 17, "behind `||`", "(role == 'a' || delegated)"),
    ("if role == 'a' then true", 0, "`condition ? a : b`", "role == 'a' ? true : false"),
    ("role == 'a' elif", 12, "`condition ? a : b`", "role == 'a' ? true : false"),
    ("role == 'a' ? true : elif", 21, "`condition ? a : b`", "role == 'a' ? true : false"),
    ("role between 'a' and 'b'", 5, "`a <= x && x <= b`", "'a' <= role && role <= 'b'"),
    ("roles.contains('x')", 6, "`'a' in roles`", "'x' in roles"),
    ("roles.includes('x')", 6, "`'a' in roles`", "'x' in roles"),
    ("roles == 'x'", 0, "`'a' in roles`", "'x' in roles"),
    ("user.name == 'a'", 0, ROLES, "role == 'a'"),
    ("principal == 'a'", 0, ROLES, "role == 'a'"),
    ("ref == main", 7, "`'main'`", "ref == 'main'"),
    ("role != alice.smith", 8, "`'alice.smith'`", "role != 'alice.smith'"),
    ("role in [alice, 'b']", 9, "`'alice'`", "role in ['alice', 'b']"),
    ("role in ['a', bob]", 14, "`'bob'`", "role in ['a', 'bob']"),
    ("delegated == True", 13, "`true`", "delegated == true"),
]


def remark(text: str) -> Remark:
    found = analyze_rule(inline_rule("r", text), frozenset())
    assert isinstance(found, Remark)
    return found


@pytest.mark.parametrize(("slip", "offset", "hint", "meant"), SLIPS)
def test_a_slip_has_a_hint_and_keeps_its_place(slip: str, offset: int, hint: str, meant: str) -> None:
    found = remark(slip)
    assert found.offset == offset
    assert hint in found.hint
    assert bool(hint) == bool(found.hint)
    assert "did you mean `int`" not in found.hint
    if meant:
        compile_program(meant)


@pytest.mark.parametrize(("slip", "hint"), [("role not in ['a']", "`!(a in b)`"), ("not(delegated)", "write `!`")])
def test_the_error_of_a_start_has_the_hint(slip: str, hint: str) -> None:
    with pytest.raises(RuleCompileError) as caught:
        inline_rules({"r": slip})
    assert hint in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        "a b",
        "&& delegated",
        "role == == 'a'",
        "role 'a'",
        "|| true",
        "(delegated",
        "f(a)(b)",
        "delegated in",
        "role == 5 true",
    ],
)
def test_other_errors_have_no_hint(text: str) -> None:
    assert remark(text).hint == ""


@pytest.mark.parametrize(
    "text",
    ["attributes.not == 1", "attributes.and", "'a and b' == role", "attributes.user.name == 'a'", "['is'] == roles"],
)
def test_words_of_others_may_be_keys_and_texts(text: str) -> None:
    compile_program(text)
