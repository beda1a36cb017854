"""Object references: one grammar, one canonical encoding, both ways."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdp.decision.bodies import ResourceBody, make_principal, make_resource
from pdp.errors import InvalidReference
from pdp.model.question import CONTENT_TYPES, Resource
from pdp.model.references import format_resource, parse_principal, parse_resource

PARTS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\u2028\u2029"), min_size=1, max_size=6
)


@given(st.sampled_from(sorted(CONTENT_TYPES)), PARTS, st.lists(PARTS, min_size=1, max_size=4), st.none() | PARTS)
def test_formatting_and_parsing_are_inverse(type: str, warehouse: str, path: list[str], ref: str | None) -> None:
    resource = Resource(type, warehouse, tuple(path), ref)
    text = format_resource(resource)
    assert parse_resource(text) == resource
    assert format_resource(parse_resource(text)) == text


@given(st.sampled_from(sorted(CONTENT_TYPES)), PARTS, st.lists(PARTS, min_size=1, max_size=4), st.none() | PARTS)
def test_both_forms_are_one_resource(type: str, warehouse: str, path: list[str], ref: str | None) -> None:
    in_parts = make_resource(ResourceBody(type, warehouse, tuple(path), ref=ref))
    assert make_resource(format_resource(in_parts)) == in_parts


@given(st.text(max_size=20))
def test_any_text_parses_or_is_refused(text: str) -> None:
    for parse in (parse_resource, parse_principal):
        try:
            parse(text)
        except InvalidReference as error:
            assert str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("text", "path", "ref"),
    [
        ("table:lake/sales/orders", ("sales", "orders"), None),
        ("table:lake/sales/orders@main", ("sales", "orders"), "main"),
        ("table:lake/sales/orders@feature%2Fx", ("sales", "orders"), "feature/x"),
        ("table:lake/a%2Fb/c%40d", ("a/b", "c@d"), None),
        ("table:lake/a/b%252F", ("a", "b%2F"), None),
        ("table:lake/a/b%2fc", ("a", "b/c"), None),
        ("content:lake/Foo@prod", ("Foo",), "prod"),
    ],
)
def test_parts_are_split_first_and_decoded_once(text: str, path: tuple[str, ...], ref: str | None) -> None:
    assert parse_resource(text) == Resource(text.partition(":")[0], "lake", path, ref)


@pytest.mark.parametrize(
    "text",
    [
        "", "table", "table:", "table:lake", "table:lake/", "table:/a", "table:lake//a", "table:lake/a@", "table:lake/a@b@c",
        "table:lake/a@feature/x", "table:lake/a%", "table:lake/a%2", "table:lake/a%zz", "table:lake/%ff", "table:lake/a%00", "table:lake/a%0A",
        "table:lake/a\n", "table:lake/a\x00", "table:lake/a\u2028", "table:lake/%ED%A0%80", "nope:lake/a", "warehouse:lake@main", "warehouse:a/b",
        "warehouse:", "namespace:lake", "project:", "project:a/b", "tag:a@b", "server:", "server:x", "reference:lake/x@main", "user:alice", "user:~a", "user:o~",
        "user:OIDC~a", "user:oidc~a\nb", "role:", "role:\t", "repository_config:lake", "repository_config:lake/A/B", "table:lake/a\ud800",
    ],
)  # fmt: skip
def test_attacks_are_refused(text: str) -> None:
    with pytest.raises(InvalidReference):
        parse_resource(text)


@pytest.mark.parametrize(
    "name", ["oidc~alice", "oidc~a/b@c%20d", "oidc~a~b", "oidc~%2F", "k8s-1~system:serviceaccount:a:b"]
)
def test_users_are_verbatim(name: str) -> None:
    assert parse_resource(f"user:{name}").name == name
    assert parse_principal(f"user:{name}").id == f"user:{name}"
    assert format_resource(parse_resource(f"user:{name}")) == f"user:{name}"


@pytest.mark.parametrize("body", [{"type": "nope"}, {"type": "table"}, {"type": "table", "warehouse": "lake"}, {"type": "table", "warehouse": "lake", "path": [""]},
    {"type": "role", "name": ""}, {"type": "user", "name": "alice"}, {"type": "warehouse", "warehouse": "lake", "path": ["a"]}, {"type": "project", "name": "p", "warehouse": "w"},
    {"reference": "table:lake/a", "path": ["b"]}, {"type": "table", "warehouse": "lake", "path": ["sales"], "name": "orders"}, {"type": "server", "path": ["a"]},
    {"type": "server", "warehouse": "lake"}, {"type": "warehouse", "warehouse": "lake", "ref": "main"}, {"type": "table", "warehouse": "la\nke", "path": ["a"]}])  # fmt: skip
def test_parts_that_do_not_fit_their_type_are_refused(body: dict[str, object]) -> None:
    with pytest.raises(InvalidReference):
        make_resource(msgspec.convert(body, ResourceBody))


def test_no_unicode_normalisation() -> None:
    composed, decomposed = parse_resource("table:lake/caf\u00e9"), parse_resource("table:lake/cafe\u0301")
    assert composed != decomposed


@pytest.mark.parametrize("text", ["alice", "", "role:", "user:", "anonymous:x", "Anonymous"])
def test_principals_that_are_none(text: str) -> None:
    with pytest.raises(InvalidReference):
        make_principal(text)
