"""Rule files: the rules in them, and the places of their errors."""

from __future__ import annotations

import string
from pathlib import Path

import javaproperties
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.generators.cel_values import arguments

from pdp.config.quarkus import properties
from pdp.config.warehouses import TrinoSettings
from pdp.engines.cel import sources
from pdp.engines.cel.rules import inline_rules, load_rules, rules_unfed_by_trino
from pdp.errors import DuplicateRule, Place, PolicyError, RuleCompileError

PREFIX = "nessie.server.authorization.rules."


def _file(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def _texts(path: Path) -> dict[str, str]:
    return dict(load_rules([path]).texts)


def test_properties(tmp_path: Path) -> None:
    text = (
        "# a comment\n"
        f"{PREFIX}dotted.id=true\n"
        f'{PREFIX}"quoted.id" = ref == "x"\n'
        f"{PREFIX}continued=\\\n  op == 'a' && \\\n\tref == 'b'\n"
        f"{PREFIX}escaped : ref.matches('a\\\\\\\\.b') && role == '\\u00e9' && path != '\\ud83d\\ude00'\n"
        f"{PREFIX}plain=role == 'é😀' || ref == '\\\\${{x}}'\r\n"
    )
    assert _texts(_file(tmp_path, "rules.properties", text)) == {
        "dotted.id": "true",
        "quoted.id": 'ref == "x"',
        "continued": "op == 'a' && ref == 'b'",
        "escaped": "ref.matches('a\\\\.b') && role == 'é' && path != '😀'",
        "plain": "role == 'é😀' || ref == '${x}'",
    }


def test_yaml(tmp_path: Path) -> None:
    text = "rules:\n  a: ref == 'x'\n  'b.c': |\n    op == 'a' &&\n      ref == 'b'\n  d: true\nother: 1\n"
    rules = load_rules([_file(tmp_path, "rules.yaml", text)])
    assert rules.texts == {"a": "ref == 'x'", "b.c": "op == 'a' &&\n  ref == 'b'\n", "d": "true"}
    assert tuple(map(str, rules.warnings)) == (f"{tmp_path}/rules.yaml:7:1: ignored key `other`",)


def test_rules_come_sorted_and_places_are_where_the_text_begins(tmp_path: Path) -> None:
    one = _file(tmp_path, "one.properties", f"\n{PREFIX}z = true\n")
    two = _file(tmp_path, "two.yml", "rules: {a: 'true'}\n")
    rules = load_rules([one, two]).rules
    assert [(rule.id, rule.place) for rule in rules] == [("a", Place(str(two), 1, 13)), ("z", Place(str(one), 2, 39))]
    assert rules[0].program.evaluate(*arguments()) is True


def test_other_keys_are_reported(tmp_path: Path) -> None:
    text = "# c\nquarkus.http.port=1\nnessie.server.authorization.enabled=true\nother=1\nquarkus.log.level=INFO\n"
    path = _file(tmp_path, "a.properties", f"{text}{PREFIX}a=true\n")
    rules = load_rules([path])
    assert tuple(map(str, rules.warnings)) == (
        f"{path}:2:1: ignored 2 keys of `quarkus`, which hold no rules",
        f"{path}:4:1: ignored key `other`",
    )
    assert list(rules.texts) == ["a"]


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        (f"{PREFIX}r=nope == 'x'", 1, 37),
        (f"\n\n{PREFIX}r  =  op == 'x' && nope", 3, 54),
        (f"{PREFIX}r=\\\n   op == 'x' && \\\n\t nope == 1\n", 3, 3),
        (f"{PREFIX}r=op == '\\u0041\\\\n' && nope", 1, 58),
        (f"{PREFIX}r=op == '\\ud83d\\ude00' && nope", 1, 61),
        (f"{PREFIX}r=op ==", 1, 42),
        (f"{PREFIX}r=", 1, 37),
        (f"# a\r\n{PREFIX}r=\\\r\n  1 in roles\r\n", 3, 3),
        (f"a=b\\\n\nc=d\n{PREFIX}r=nope", 4, 37),
    ],
)
def test_properties_errors_say_where(tmp_path: Path, text: str, line: int, column: int) -> None:
    path = _file(tmp_path, "rules.properties", text)
    with pytest.raises(RuleCompileError) as caught:
        load_rules([path])
    assert (caught.value.rule, caught.value.place) == ("r", Place(str(path), line, column))
    assert str(caught.value).startswith(f"{path}:{line}:{column}: rule `r`: ")


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("rules:\n  r: nope == 'x'\n", 2, 6),
        ('rules:\n  r: "true && nope"\n', 2, 15),
        ("rules:\n  r: 'true && nope'\n", 2, 15),
        ("rules:\n  r: |\n    op == 'x' &&\n      nope\n", 4, 7),
        ("rules:\n  r: |-\n\n    nope\n", 4, 5),
        ("rules:\n  r: >\n    op == 'x' &&\n    nope\n", 2, 6),
        ("rules:\n  r:\n", 2, 5),
        ("rules: {r: }\n", 1, 12),
    ],
)
def test_yaml_errors_say_where(tmp_path: Path, text: str, line: int, column: int) -> None:
    path = _file(tmp_path, "rules.yaml", text)
    with pytest.raises(RuleCompileError) as caught:
        load_rules([path])
    assert caught.value.place == Place(str(path), line, column)


def test_inline_errors_say_where() -> None:
    with pytest.raises(RuleCompileError) as caught:
        inline_rules({"ok": "true", "r": "op == 'x' &&\n  nope"})
    assert (caught.value.rule, caught.value.place) == ("r", Place("<inline>", 2, 3))


@pytest.mark.parametrize("text", ["", "  \n ", "// nothing"])
def test_an_empty_rule_is_an_error(text: str) -> None:
    with pytest.raises(RuleCompileError):
        inline_rules({"r": text})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.properties", f"{PREFIX}r=true\n{PREFIX}s=true\n{PREFIX}r=true\n"),
        ("a.properties", f'{PREFIX}r=true\n{PREFIX}"r"=true\n'),
        ("a.yaml", "rules:\n  r: 'true'\n  s: 'true'\n  r: 'true'\n"),
    ],
)
def test_a_duplicate_inside_one_file(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(DuplicateRule, match="rule `r`"):
        load_rules([_file(tmp_path, name, text)])


def test_a_duplicate_across_files(tmp_path: Path) -> None:
    one = _file(tmp_path, "one.properties", f"{PREFIX}r=true\n")
    two = _file(tmp_path, "two.yaml", "rules:\n  r: 'true'\n")
    with pytest.raises(DuplicateRule) as caught:
        load_rules([one, two])
    assert caught.value.place.file == str(two)
    assert str(one) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.txt", "", 1),
        ("a.properties", b"\n\nx=\xff\n", 3),
        ("a.properties", f"\n{PREFIX}r=\\u12\n", 2),
        ("a.properties", f"{PREFIX}=true\n", 1),
        ("a.properties", f'{PREFIX}""=true\n', 1),
        ("a.yaml", "rules: [a]\n", 1),
        ("a.yaml", "rules:\n  r: {a: b}\n", 2),
        ("a.yaml", "- a\n", 1),
        ("a.yaml", "rules:\n  ? [a]\n  : b\n", 2),
        ("a.yaml", "rules:\n  '': b\n", 2),
        ("a.yaml", "rules: {a: [\n", 2),
        ("a.yaml", "a: " + "[" * 200_000 + "]" * 200_000, 1),
        ("a.yaml", "a: \x00", 1),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, text: str | bytes, line: int) -> None:
    path = _file(tmp_path, name, text)
    with pytest.raises(PolicyError) as caught:
        load_rules([path])
    assert (caught.value.place.file, caught.value.place.line) == (str(path), line)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="cannot read"):
        load_rules([tmp_path / "none.properties"])


def test_a_file_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_FILE_BYTES", 10)
    with pytest.raises(PolicyError, match="larger"):
        load_rules([_file(tmp_path, "a.properties", "#" * 11)])


def test_empty_files_hold_no_rules(tmp_path: Path) -> None:
    for name, text in (("a.properties", ""), ("a.yaml", ""), ("b.yaml", "rules:\n")):
        assert load_rules([_file(tmp_path, name, text)]).rules == ()


def test_extensions_reach_the_rules() -> None:
    assert inline_rules({"r": "ref.trim() == ''"}, frozenset({"strings"})).rules
    with pytest.raises(RuleCompileError):
        inline_rules({"r": "ref.trim() == ''"})


@given(st.text(alphabet=string.ascii_letters + "\\\n\r\t \f=:#!u0041d83e\u00e9😀'", max_size=60))
def test_every_character_of_a_value_has_its_place(value: str) -> None:
    """Whatever the escapes and continuations, the places are those of the characters that the library reads."""
    text = f"{PREFIX}r={value}\n"
    try:
        (element, *_) = [one for one in javaproperties.parse(text) if isinstance(one, javaproperties.KeyValue)]
    except javaproperties.InvalidUEscapeError:
        return
    positions = properties._value_positions(element.source, len(element.value), 1)
    assert properties._value_start(element.source, 1) in (None, positions[0])
    assert len(positions) == len(element.value) + 1
    lines = [line.rstrip("\r\n") for line in properties._LINE.findall(text)]
    for character, (line, column) in zip(element.value, positions[:-1], strict=True):
        found = lines[line - 1][column - 1]
        assert found in (character, "\\")
    assert list(positions) == sorted(positions)


@pytest.mark.parametrize(
    ("rule", "unfed"),
    [
        ("'a' in roles", False),
        ("'a' in roles && 'b' in roles", False),
        ("'a' in roles && 'c' in roles", True),
        ("'c' in roles && 'd' in roles && 'e' in roles", True),
        ("roles.exists(r, r == 'a') && 'b' in roles && path == 'x'", False),
    ],
)
def test_a_forbid_on_several_roles_is_fed_if_each_is(rule: str, unfed: bool) -> None:
    (found,) = inline_rules({"f": rule}).rules
    trino = TrinoSettings.model_validate({"catalogs": {"lk": {"warehouse": "lake"}}, "groups": {"x": "a", "y": "b"}})
    assert bool(list(rules_unfed_by_trino([found], trino))) is unfed
