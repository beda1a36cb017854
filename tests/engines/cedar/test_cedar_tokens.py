"""Tokens of Cedar policies, beside Cedar's own parser."""

from __future__ import annotations

import cedarpy
import pytest
from cedarpy import pst
from hypothesis import given, settings
from hypothesis import strategies as st

from pdp.engines.cedar.actions import Uid
from pdp.engines.cedar.tokens import guarded_entities, named_entities, read_entities, split_policies

IDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=6)
SPELLINGS = [
    ('permit(principal, action, resource) when {{ {0}.name == "x" }};', True),
    ("permit(principal, action, resource) when {{ {0} in {1} }};", True),
    ("permit(principal, action, resource) when {{ resource in {0} }};", False),
    ("permit(principal, action, resource) when {{ resource == {0} || {0} == principal }};", False),
    ("permit(principal, action, resource) when {{ resource in [{1}, {0}] }};", False),
    ("permit(principal, action, resource) when {{ principal.roles.contains({0}) }};", False),
    ("permit(principal, action, resource) unless {{ resource == {0} && {0} has x }};", True),
    ("permit(principal, action, resource) when {{ (if true then {0} else {1}).x }};", True),
    ("permit(principal, action, resource) when {{ {{a: {0}}}.a.x }};", True),
    ("permit(principal, action, resource) when {{ resource == {0}.owner }};", True),
    ('permit(principal, action, resource) when {{ resource == {0}["owner"] }};', True),
    ("permit(principal, action, resource) when {{ ({0}).x }};", True),
    ("permit(principal, action, resource == {0});", False),
    ("@when({2}) permit(principal in {0}, action, resource) when {{ true }};", False),
    ('permit(principal, action, resource) when {{ "{{" == "when" || {0}.hasTag("x") }}; // in [', True),
    ("permit(principal, action, resource) when {{ [{0}.x].contains(1) }};", True),
]


def quoted(id: str) -> str:
    """Return an id with every character as an escape, or as it is where that is plain."""
    return '"' + "".join(sign if sign.isalnum() and sign.isascii() else f"\\u{{{ord(sign):x}}}" for sign in id) + '"'


@settings(deadline=None)
@given(st.sampled_from(SPELLINGS), IDS)
def test_a_read_entity_is_never_missed(spelling: tuple[str, bool], id: str) -> None:
    form, reads = spelling
    uid: Uid = ("Lakekeeper::Namespace", id)
    text = form.format(f"Lakekeeper /* no */ :: Namespace::{quoted(id)}".replace(" /* no */ ", ""), 'A::"b"', '"in"')
    cedarpy.PolicySet.from_str(text)
    assert (uid in read_entities(text)) == reads


@settings(deadline=None)
@given(st.lists(st.sampled_from(SPELLINGS), max_size=4), IDS)
def test_entities_and_policies_are_those_of_cedars_parser(spellings: list[tuple[str, bool]], id: str) -> None:
    texts = [form.format(f"A::B::{quoted(id)}", 'A::"b"', '"in"') for form, _ in spellings]
    whole = "\n// permit(principal, action, resource);\n".join(texts)
    parsed = cedarpy.policies_to_pst(whole)
    assert len(split_policies(whole)) == len(parsed.static_policies)
    expected = {(str(uid.type), uid.id) for uid in pst.entity_uids(parsed)}
    assert {uid for part in split_policies(whole) for uid in named_entities(part.text)} == expected


@pytest.mark.parametrize(("text", "guarded"), [('A::"x" has y && A::"x".y', {("A", "x")}), ('A::"x".y has z', set())])
def test_guards(text: str, guarded: set[Uid]) -> None:
    assert guarded_entities(text) == guarded
