"""Files of row policies and masks that are none: each stops the start with one line that says what and where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from support.oracles.rows import MASK, POLICY, bundle_of, load, seen

from pdp.errors import ConfigError, DuplicateRule, PolicyError


def refused(folder: Path, name: str, text: str) -> PolicyError:
    """The error of a file that must not load, which is one line and names the file."""
    (folder / name).write_text(text)
    with pytest.raises(PolicyError) as raised:
        bundle_of(folder, name)
    assert str(raised.value).startswith(f"{folder / name}:")
    assert str(raised.value).isprintable()
    return raised.value


def without(key: str, entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != key}


@pytest.mark.parametrize(
    ("data", "word"),
    [
        ({"polices": []}, "`polices`"),
        ({"policies": None}, "`$.policies`"),
        ({"policies": {"p": POLICY}}, "`$.policies`"),
        ({"default": "lake"}, "`$.default`"),
        ({"default": ["lake", 1]}, "`$.default[1]`"),
        ({"tables": {"lake.s.t": {"columns": ["c"]}}}, "columns`"),
        ([], "`object`, got `array`"),
        (False, "`object`, got `bool`"),
        ("text", "`object`, got `str`"),
        ({1: 2}, "`key`"),
        ({"tables": {"t": {"columns": {"c": "INTEGER"}}}}, "`tables`: `t` is no"),
        ({"tables": {"table:lake": {"columns": {"c": "INTEGER"}}}}, "`tables`: "),
    ],
)
def test_a_document_that_is_none(tmp_path: Path, data: Any, word: str) -> None:
    assert word in str(refused(tmp_path, "rows.yaml", yaml.safe_dump(data)))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        *(({key: None}, f"policies[0].{key}`") for key in ("id", "table", "grantees", "filter", "dialect", "identity")),
        ({"more": 1}, "`more`"),
        ({"id": 1}, "policies[0].id`"),
        ({"filter": 1}, "policies[0].filter`"),
        ({"grantees": "allUsers"}, "policies[0].grantees`"),
        ({"grantees": [1]}, "policies[0].grantees[0]`"),
        *(({"id": id}, "an id is") for id in ("", "a b", "a\nb", "p\u00e9", "x" * 257, "a/b", "<b>", ".", "..")),
        *(
            ({"grantees": ["allUsers", grantee]}, "is no grantee")
            for grantee in ("", "user", "user:", "user: ", "User:a", "allusers", "alice@x.com", "principal://x", "specialGroup:x")
        ),
        *(({"table": name}, "is no `<warehouse>") for name in ("t", "", "lake..t", "lake.s.", "lake.s. t", "lake.s.t ", "lake\n.s.t")),
        ({"table": "lake.s.t\x00"}, "control character"),
        ({"table": "table:lake/s/t@main"}, "without a ref"),
        ({"table": "namespace:lake/s"}, "no table or view"),
        ({"table": "table:"}, "empty part"),
        ({"table": "chair:lake/s/t"}, "unknown resource type"),
        ({"dialect": "klingon"}, "klingon"),
        *(
            ({"filter": text}, word)
            for text, word in (
                ("FALSE) OR (1=1", "does not parse"),
                ("x = 1) OR (TRUE", "does not parse"),
                ("a; b", "not one expression"),
                ("x = 1; DROP TABLE t", "not one expression"),
                ("x = 1 /* ", "does not parse"),
                ("-- x", "not one expression"),
                ("x = 1 /* /* */ */", "does not parse"),
                *(
                    (text, "does not parse")
                    for text in (
                        "a == 2", "a::int = 2", "s = \u2018EU\u2019", "s = \u201cEU\u201d", "`a` = 1", "a <=> b", "a DIV 2 = 1",
                        "s RLIKE 'E.*'", "s ILIKE 'eu'", "s GLOB 'E*'", "s SIMILAR TO 'E'", "s ISNULL", "s NOTNULL",
                        "b IS TRUE", "NOT b IS FALSE", "!b", "{x} = 1", "x ^ 2 = 1", "x | 2 = 1", "s = 'E' 'U'", "s = N'x'",
                        "x IN (1,)", "x\u00a0= 1", "s = $$EU$$", "gr\u00f6sse = 1", "s = 'EU' # all", "x = 1 // all", "b;;",
                    )
                ),
                ("", "not one expression"),
                ("sum(x) > 1", "an aggregate"),
                ("count(*) > 1", "an aggregate"),
                ("EXISTS (SELECT 1 FROM u) AND max(x) = 1", "an aggregate"),
                ("row_number() OVER () = 1", "a window"),
                ("x IN (SELECT row_number() OVER () FROM u) AND rank() OVER () = 1", "a window"),
                ("t.*", "a star"),
                ("x = ?", "a parameter"),
                ("x = :y", "a parameter"),
                ("x IN (SELECT y FROM u WHERE z = ?)", "a parameter"),
                ("random() < 0.5", "a random value"),
                ('"rand"() < 0.5', "a random value"),
                ("system.builtin.random() < 0.5", "a random value"),
                ("uuid() = x", "a random value"),
                ("shuffle(x)[1] = 1", "a random value"),
                ("x IN (SELECT random() FROM u)", "a random value"),
                ("SELECT 1", "not one expression"),
                ("(SELECT TRUE)", "not one expression"),
                ("((SELECT TRUE))", "not one expression"),
                ("x = 1 UNION SELECT 1", "not one expression"),
                ("VALUES 1", "not one expression"),
                ("x, y", "does not parse"),
                ("(x, y)", "not one expression"),
                ("x AS y", "not one expression"),
                ("DROP TABLE t", "not one expression"),
                ("1", "a value, not a condition"),
                ("'x'", "a value, not a condition"),
                ("('x')", "a value, not a condition"),
                ("(" * 3000 + "x" + ")" * 3000, "does not parse"),
            )
        ),
    ],
)  # fmt: skip
def test_a_policy_that_is_none(tmp_path: Path, change: dict[str, Any], word: str) -> None:
    assert word in str(refused(tmp_path, "rows.yaml", yaml.safe_dump({"policies": [POLICY | change]})))


@pytest.mark.parametrize("key", ["id", "table", "filter"])
def test_a_policy_lacks_a_field(tmp_path: Path, key: str) -> None:
    assert f"`{key}`" in str(refused(tmp_path, "rows.yaml", yaml.safe_dump({"policies": [without(key, POLICY)]})))


@pytest.mark.parametrize("key", ["id", "table", "column", "grantees", "kind"])
def test_a_mask_lacks_a_field(tmp_path: Path, key: str) -> None:
    assert f"`{key}`" in str(refused(tmp_path, "rows.yaml", yaml.safe_dump({"masks": [without(key, MASK)]})))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"kind": "nil"}, "'nil'"),
        ({"kind": True}, "masks[0].kind`"),
        ({"column": ""}, "names no column"),
        ({"grantees": []}, "no grantees"),
        ({"except": ["x"]}, "is no grantee"),
        ({"exempt": ["allUsers"]}, "`exempt`"),
        *(({"kind": kind}, "takes an `expression`") for kind in ("constant", "expression")),
        *(({"kind": kind, "expression": "x"}, "takes no `expression`") for kind in ("null", "hash", "partial")),
        *(
            ({"kind": "expression", "expression": text}, word)
            for text, word in (
                ("name AS varchar) || CAST(name", "does not parse"),
                ("a; b", "not one expression"),
                ("(SELECT secret FROM u)", "not one expression"),
                ("max(c)", "an aggregate"),
                ("random()", "a random value"),
            )
        ),
        ({"table": "u"}, "is no `<warehouse>"),
    ],
)
def test_a_mask_that_is_none(tmp_path: Path, change: dict[str, Any], word: str) -> None:
    assert word in str(refused(tmp_path, "rows.yaml", yaml.safe_dump({"masks": [MASK | change]})))


@pytest.mark.parametrize(
    "text",
    ['{"policies": [], "policies": []}', "{", "[" * 100_000, '{"policies": [{"id": "p", "id": "q"}]}', "\ufeff{}"],
)
def test_json_that_does_not_parse(tmp_path: Path, text: str) -> None:
    assert "does not parse" in str(refused(tmp_path, "rows.json", text))


@pytest.mark.parametrize("text", ["policies: []\npolicies: []", "a: [", "- " * 20_000, "a: &a [*a]", "? [a]\n: b"])
def test_yaml_that_does_not_parse(tmp_path: Path, text: str) -> None:
    refused(tmp_path, "rows.yaml", text)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"rows\.yaml.*cannot be read"):
        bundle_of(tmp_path, "rows.yaml")
    (tmp_path / "rows.yaml").write_bytes(b"\xff")
    with pytest.raises(PolicyError, match="does not parse"):
        bundle_of(tmp_path, "rows.yaml")


@pytest.mark.parametrize("kind", ["policies", "masks"])
def test_an_id_stands_for_one_thing_of_a_table(tmp_path: Path, kind: str) -> None:
    entry = POLICY if kind == "policies" else MASK
    again = {"table": "table:lake/S/T", **({"column": "C"} if kind == "masks" else {})}
    (tmp_path / "a.yaml").write_text(yaml.safe_dump({kind: [entry]}))
    error = refused(tmp_path, "b.yaml", yaml.safe_dump({kind: [entry, entry | again]}))
    assert (error.code, type(error)) == ("duplicate_rule", DuplicateRule)
    (tmp_path / "b.yaml").write_text(yaml.safe_dump({kind: [entry | again]}))
    with pytest.raises(DuplicateRule, match=r"b\.yaml.*`.` stands there already"):
        bundle_of(tmp_path, "*.yaml")
    (tmp_path / "b.yaml").write_text(yaml.safe_dump({kind: [entry | {"table": "lake.s.u"}]}))
    bundle_of(tmp_path, "*.yaml")


def test_policies_of_one_table_have_one_identity(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(yaml.safe_dump({"policies": [POLICY | {"identity": "view_owner"}]}))
    (tmp_path / "b.yaml").write_text(yaml.safe_dump({"policies": [POLICY | {"id": "q"}]}))
    with pytest.raises(PolicyError, match=r"b\.yaml.*`p` and `q` of one table have different identities"):
        bundle_of(tmp_path, "a.yaml", "b.yaml")
    (tmp_path / "b.yaml").write_text(yaml.safe_dump({"policies": [POLICY | {"id": "q", "filter": "TRUE"}]}))
    assert seen(bundle_of(tmp_path, "a.yaml", "b.yaml")).rows is None


@pytest.mark.parametrize("container", ["table:lake/s/t", "lake.s", "namespace:", "server", "reference:lake@main"])
def test_what_is_protected_is_a_container(tmp_path: Path, container: str) -> None:
    with pytest.raises(ConfigError, match=r"row_access\.protected"):
        load(tmp_path, {}, row_access={"protected": [container]})


TEXT = """\
policies:
  - {id: p, table: lake.s.t, grantees: [allUsers], filter: x = 1}
  - id: q
    table: lake.s.u
    grantees:
      - allUsers
    filter: y = 2
masks:
  - id: m
    table: lake.s.t
    column: c
    grantees: [allUsers]
    kind: expression
    expression: upper(c)
"""


@pytest.mark.parametrize(
    ("old", "new", "place", "words"),
    [
        ("y = 2", "y = 2)", "7:13", "it does not parse: unexpected `)` at line 1, column 6 of the text"),
        ("y = 2", "y =", "7:13", "it does not parse: something is missing after `=` at line 1, column 3"),
        ("y = 2", "y = 'a", "7:13", "it does not parse: a quote"),
        ("lake.s.u", "u", "4:12", "`u` is no"),
        ("id: q", "id: q q", "3:9", "an id is"),
        ("      - allUsers", "      - nobody", "6:9", "is no grantee"),
        ("upper(c)", "upper(c", "14:17", "it does not parse: `)` is missing after `c`"),
        ("upper(c)", "max(c)", "14:17", "it holds an aggregate"),
        ("kind: expression", "kind: hide", "13:11", "'hide'"),
        ("column: c", "colum: c", "11:12", "`colum`"),
        ("id: q", "id: p", "3:9", ""),
        ("filter: y = 2", "filter: [y]", "7:13", "policies[1].filter`"),
        ("masks:", "masks: {", "9:3", "does not parse"),
    ],
)
def test_an_error_has_its_line_and_column_and_no_parser_in_it(
    tmp_path: Path, old: str, new: str, place: str, words: str
) -> None:
    text = TEXT.replace(old, new).replace("lake.s.u", "lake.s.t" if (old, new) == ("id: q", "id: p") else "lake.s.u")
    error = str(refused(tmp_path, "rows.yaml", text))
    assert error.startswith(f"{tmp_path / 'rows.yaml'}:{place}: ")
    assert words in error
    for inside in ("sqlglot", "<class", "keyword", "Expecting", "Error tokenizing"):
        assert inside not in error


def test_an_error_in_json_has_its_line(tmp_path: Path) -> None:
    error = refused(
        tmp_path,
        "rows.json",
        '{"policies": [\n  {"id": "p", "table": "lake.s.t",\n   "grantees": ["x"], "filter": "a"}]}',
    )
    assert (error.place.line, error.place.column) == (3, 17)
    error = refused(tmp_path, "rows.json", '{"policies": [\n  }')
    assert (error.place.line, error.place.column) == (2, 3)
