"""Members and restrictions: recorded answers, and an oracle on generated worlds."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from spec.restriction import visible_part
from support.paths import RECORDED as RECORDED_FOLDER

from pdp.engines.row_access.engine import UNRESTRICTED, Restriction, RowAccessEngine
from pdp.engines.row_access.mask_kinds import MASK_KINDS
from pdp.engines.row_access.members import Members, parse_grantee
from pdp.engines.row_access.policies import parse_document
from pdp.engines.row_access.validation import compile_policies
from pdp.errors import PolicyError
from pdp.facts.objects import Grant, GrantAdded
from pdp.facts.snapshot import Facts
from pdp.model.answer import Predicate, TypedColumn
from pdp.model.question import Principal, Resource
from pdp.model.references import parse_principal
from pdp.store.world import parse_world

RECORDED = RECORDED_FOLDER / "rowaccess" / "grantee_cases.jsonl"
OIDC = Members("user:{subject}", "oidc")
NOBODY = Facts.empty()


def access(data: dict[str, Any], members: Members = OIDC) -> RowAccessEngine:
    document = {key: value for key, value in data.items() if key != "protected"}
    return compile_policies([parse_document(document)]).build_engine(members, data.get("protected", ()))


def table(*path: str, ref: str | None = None) -> Resource:
    return Resource("table", "lake", path, ref)


def user(name: str, *groups: str) -> Principal:
    return Principal("user", name, groups=groups)


def is_named(grantee: str, who: Principal, members: Members = OIDC, facts: Facts = NOBODY) -> bool:
    return members.matches(who, (parse_grantee(grantee),), facts)


# --- recorded answers ---------------------------------------------------------------------------------------------


def recorded(kind: str) -> list[dict[str, Any]]:
    lines = map(json.loads, RECORDED.read_text().splitlines())
    return [line for line in lines if line["kind"] == kind]


def sender(headers: dict[str, str]) -> tuple[str, list[str], bool]:
    """Return the sender in the emulator's headers: the first value without a blank and a comma, or nobody."""
    given = {name.lower(): value.strip() for name, value in headers.items()}
    usable = {name: value for name, value in given.items() if value and not re.search(r"[\s,]", value)}
    groups = [group.strip().removeprefix("group:") for group in given.get("x-bqemu-groups", "").split(",")]
    groups = [group for group in groups if group]
    if "x-bqemu-caller" in usable:
        return usable["x-bqemu-caller"], groups, True
    if "x-goog-user-project" in usable:
        return f"user:caller@{usable['x-goog-user-project']}.iam.gserviceaccount.com", groups, True
    return "user:anonymous@bqemulator.local", groups, False


def test_the_recorded_senders() -> None:
    for line in recorded("identity"):
        member, groups, known = sender(line["headers"])
        wanted = line["expect"]
        assert (member, groups, known) == (wanted["principal"], wanted["groups"], wanted["is_authenticated"]), line


def test_the_recorded_matches() -> None:
    lines = recorded("match")
    assert len(lines) == 600
    matched = 0
    for line in lines:
        member, groups, known = sender(line["headers"])
        # the member is all that the sender is: a template of the subject alone says it
        kind, name = ("user", f"oidc~{member}") if known else ("anonymous", "")
        who = Principal(kind, name, groups=tuple(groups))
        try:
            found = is_named(line["grantee"], who, Members("{subject}", "oidc"))
        except ValueError:
            found = False
        assert found == line["expect"], line
        matched += found
    assert matched == 64


def claiming(idp: str, attributes: str) -> Principal:
    return Principal("user", f"{idp}~s-1", attributes=attributes)


@pytest.mark.parametrize(
    ("grantee", "who", "named"),
    [
        ("user:a@x.com", claiming("oidc", '{"email":"a@X.com"}'), True),
        ("user:s-1", claiming("oidc", '{"email":"a@x.com"}'), False),
        ("user:s-1", claiming("oidc", "{}"), False),
        ("user:", claiming("oidc", '{"email":""}'), False),
        ("user:None", claiming("oidc", '{"email":null}'), False),
        ("user:['a@x.com']", claiming("oidc", '{"email":["a@x.com"]}'), False),
        ("user:a@x.com", claiming("oidc", '{"mail":"a@x.com"}'), False),
        ("user:a@x.com", claiming("corp", '{"email":"a@x.com"}'), False),
        ("user:corp~a@x.com", claiming("corp", '{"email":"a@x.com"}'), True),
        ("user:corp~a@x.com", claiming("oidc", '{"email":"corp~a@x.com"}'), False),
        ("domain:x.com", claiming("oidc", '{"email":"a@x.com"}'), True),
        ("domain:x.com", claiming("corp", '{"email":"a@x.com"}'), False),
        ("serviceAccount:etl@p.iam.gserviceaccount.com", claiming("oidc", '{"email":"etl@p.iam.gserviceaccount.com"}'), True),
        ("serviceAccount:etl@p.iam.gserviceaccount.com", claiming("oidc", '{"email":"etl@P.IAM.gserviceaccount.com"}'), True),
        ("user:etl@p.iam.gserviceaccount.com", claiming("oidc", '{"email":"etl@p.iam.gserviceaccount.com"}'), False),
        ("serviceAccount:etl@iam.gserviceaccount.com.evil.com", claiming("oidc", '{"email":"etl@iam.gserviceaccount.com.evil.com"}'), False),
        ("allAuthenticatedUsers", claiming("oidc", "{}"), True),
        ("user:a@x.com", Principal("role", "a@x.com"), False),
    ],
)  # fmt: skip
def test_a_claim_makes_members(grantee: str, who: Principal, named: bool) -> None:
    """A user without the claim is nobody, and a service account is no user."""
    try:
        found = is_named(grantee, who, Members("user:{subject}", "oidc", "email", ["*.gserviceaccount.com"]))
    except ValueError:
        found = False
    assert found == named


@pytest.mark.parametrize("grantee", ["user:a@x.com", "serviceAccount:a@x.com", "domain:x.com", "group:g"])
def test_a_user_without_the_claim_is_masked_as_anybody(grantee: str) -> None:
    members = Members("user:{subject}", "oidc", "email")
    who = claiming("oidc", "{}")
    assert members.may_match(who, (parse_grantee(grantee),), Facts.empty()) == (grantee != "group:g")
    assert not members.matches(who, (parse_grantee(grantee),), Facts.empty())


# --- members ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grantee", "who", "named"),
    [
        ("user:alice@example.com", user("oidc~alice@example.com"), True),
        ("user:alice@EXAMPLE.com", user("oidc~alice@example.COM"), True),
        ("user:Alice@example.com", user("oidc~alice@example.com"), False),
        ("user:alice@example.com", user("oidc~ alice@example.com"), False),
        ("user:alice@example.com", user("oidc~alice@example.com "), False),
        ("user:alice@example.com", user("corp~alice@example.com"), False),
        ("user:corp~alice@example.com", user("corp~alice@example.com"), True),
        ("user:corp~alice@example.com", user("oidc~corp~alice@example.com"), False),
        ("user:oidc~corp~alice@example.com", user("oidc~corp~alice@example.com"), True),
        ("domain:example.com", user("oidc~alice@Example.com"), True),
        ("domain:example.com", user("oidc~alice@sub.example.com"), False),
        ("domain:example.com", user("oidc~alice@evil.com@example.com"), False),
        ("domain:example.com", user("oidc~example.com"), False),
        ("domain:example.com", user("corp~alice@example.com"), False),
        ("domain:book.com", user("oidc~alice@boo\u212a.com"), False),
        ("user:a@strasse.de", user("oidc~a@stra\u00dfe.de"), False),
        ("group:hr", user("oidc~alice", "hr"), True),
        ("group:hr", user("oidc~alice", "group:hr"), True),
        ("group:hr", user("oidc~alice", "HR", "hr2"), False),
        ("group:hr@example.com", user("oidc~alice", "hr@EXAMPLE.com"), True),
        ("group:hr", user("corp~alice", "hr"), False),
        ("group:corp~hr", user("corp~alice", "hr"), True),
        ("group:corp~hr", user("oidc~alice", "corp~hr"), False),
        ("serviceAccount:etl@example.com", user("oidc~etl@example.com"), False),
        ("role:etl", Principal("role", "etl"), True),
        ("role:etl", user("oidc~etl"), False),
        ("role:etl@X.com", Principal("role", "etl@X.com"), True),
        ("role:etl", Principal("user", "oidc~alice", member_of=("etl",)), True),
        ("role:etl", Principal("user", "oidc~alice", roles=("etl",)), False),
        ("user:etl", Principal("role", "etl"), False),
        ("allUsers", Principal("anonymous", ""), True),
        ("allAuthenticatedUsers", Principal("anonymous", ""), False),
        ("allAuthenticatedUsers", user("corp~x"), True),
    ],
)
def test_a_grantee_names(grantee: str, who: Principal, named: bool) -> None:
    assert is_named(grantee, who) == named


@pytest.mark.parametrize(
    ("template", "who", "grantee", "named"),
    [
        ("user:{idp}.{subject}", user("corp~alice@example.com"), "user:corp.alice@example.com", True),
        ("user:{idp}.{subject}", user("corp~alice@example.com"), "domain:example.com", False),
        ("user:{subject}@{idp}.example", user("corp~alice"), "domain:corp.example", True),
        ("user:{subject}@{idp}.example", user("corp~alice@oidc.example"), "domain:oidc.example", False),
        ("user:{idp}@{subject}", user("corp~example.com"), "domain:example.com", False),
        ("serviceAccount:{subject}", user("oidc~etl@x.com"), "serviceAccount:etl@x.com", True),
        ("serviceAccount:{subject}", user("oidc~etl@x.com"), "domain:x.com", True),
        ("user:{subject}", user("oidc~{idp}"), "user:oidc", False),
        ("user:{subject}", user("oidc~{idp}"), "user:{idp}", True),
    ],
)
def test_a_template_makes_members(template: str, who: Principal, grantee: str, named: bool) -> None:
    assert is_named(grantee, who, Members(template, "oidc")) == named


# --- the oracle ---------------------------------------------------------------------------------------------------

SUBJECTS = ["a@x.com", "A@x.com", "a@X.com", "b@y.com", "corp~a@x.com", "noat"]
GROUPS = ["g", "g@x.com", "g@X.com", "corp~g", "group:g"]
USERS = [f"user:{idp}~{subject}" for idp in ("oidc", "corp") for subject in SUBJECTS]
WHO = st.builds(
    lambda id, groups: {"id": id, "groups": groups if id.startswith("user:") else []},
    st.sampled_from([*USERS, "role:r", "role:q", "anonymous"]),
    st.lists(st.sampled_from(GROUPS), max_size=2, unique=True),
)
GRANTEES = [
    *(f"user:{subject}" for subject in SUBJECTS),
    *(f"group:{group}" for group in GROUPS[:4]),
    *("user:oidc~corp~a@x.com", "serviceAccount:a@x.com", "domain:x.com", "domain:X.com", "domain:y.com"),
    *("role:r", "role:q", "allUsers", "allAuthenticatedUsers"),
]
some = st.lists(st.sampled_from(GRANTEES), min_size=1, max_size=3)
TABLES = ["lake.s.t", "lake.S.T", "table:lake/s/t", "lake.a.b.t", "table:lake/a.b/t", "table:lake/a/b.t", "pond.s.t"]
PATHS = [
    ("lake", ["s", "t"]),
    ("lake", ["S", "t"]),
    ("lake", ["a", "b", "t"]),
    ("lake", ["a.b", "T"]),
    ("pond", ["s", "t"]),
]
policies = st.lists(
    st.tuples(st.sampled_from(TABLES), some, st.sampled_from(["TRUE", "x = 1", "y = 2", "true"])), max_size=4
).map(
    lambda drawn: [
        {"id": f"p{at}", "table": name, "grantees": grantees, "filter": text}
        for at, (name, grantees, text) in enumerate(drawn)
    ]
)
KINDS: list[dict[str, Any]] = [
    {"kind": kind, "expression": "1"} if form.has_text else {"kind": kind} for kind, form in MASK_KINDS.items()
]
masks = st.lists(
    st.tuples(st.sampled_from(TABLES), st.sampled_from("cCd"), some, some | st.just([]), st.sampled_from(KINDS)),
    max_size=4,
).map(
    lambda drawn: [
        {"id": f"m{at}", "table": name, "column": column, "grantees": grantees, "except": exempt, **kind}
        for at, (name, column, grantees, exempt, kind) in enumerate(drawn)
    ]
)
documents = st.fixed_dictionaries(
    {
        "policies": policies,
        "masks": masks,
        "protected": st.lists(
            st.sampled_from(["warehouse:pond", "namespace:lake/s", "namespace:lake/a.b", "namespace:lake/A"]),
            max_size=2,
        ),
    }
)
worlds = st.lists(
    st.tuples(st.sampled_from([*USERS[:3], USERS[6], "role:r", "role:q"]), st.sampled_from("rq"), st.booleans()),
    max_size=3,
).map(
    lambda drawn: {
        "objects": [{"object": f"role:{name}", "parent": "project:p"} for name in "rq"],
        "grants": [
            {"principal": who, "privilege": "ownership" if owns else "assignee", "object": f"role:{role}"}
            for who, role, owns in drawn
            if owns or who != f"role:{role}"
        ],
    }
)


def as_spec(found: Restriction, data: dict[str, Any]) -> dict[str, Any]:
    """A restriction as the oracle says it; its reason and its SQL must say the same."""
    rows = None
    if found.rows:
        ids = [] if found.rows.expression == "false" else found.by.removeprefix("row_access:").split(",")
        filters = [p["filter"] for id in ids for p in data["policies"] if p["id"] == id]
        wanted = " OR ".join(f"({text})" for text in filters) if len(filters) > 1 else (filters or ["false"])[0]
        assert found.rows == Predicate(wanted)
        rows = ids
    return {"rows": rows, "masks": {column: mask.id for column, mask in found.masks.items()}}


@settings(max_examples=300)
@given(documents, worlds, WHO, st.sampled_from(PATHS), st.sampled_from([None, "main", "dev"]))
def test_a_restriction_is_what_the_oracle_says(
    data: dict[str, Any], world: dict[str, Any], who: dict[str, Any], path: tuple[str, list[str]], ref: str | None
) -> None:
    principal = parse_principal(who["id"])
    principal = Principal(principal.type, principal.name, groups=tuple(who["groups"]))
    resource = Resource("table_or_view", path[0], tuple(path[1]), ref)
    found = access(data).restrict(principal, resource, parse_world(world))
    assert as_spec(found, data) == visible_part(data, world, who, path)
    assert (found.reason is None) == (found.rows is None and not found.masks)


@given(documents, worlds, WHO, st.sampled_from(PATHS))
def test_a_store_that_is_silent_shows_no_more(
    data: dict[str, Any], world: dict[str, Any], who: dict[str, Any], path: tuple[str, list[str]]
) -> None:
    """With a role anywhere among the grantees of a table nothing is seen; without one, all is as it was."""
    principal = parse_principal(who["id"])
    resource = Resource("table_or_view", path[0], tuple(path[1]))
    engine, facts = access(data), parse_world(world)
    stale = engine.restrict(principal, resource, facts, stale=True)
    fresh = engine.restrict(principal, resource, facts)
    if stale != fresh:
        assert stale.row_view([TypedColumn("c", "bigint"), TypedColumn("z", "date")])[0].masks == (
            Predicate("CAST(NULL AS bigint)"), Predicate("CAST(NULL AS date)"),
        )  # fmt: skip
        assert (stale.rows, stale.by, stale.shows_rows) == (Predicate("false"), "store_stale", False)
    if '"role:' not in json.dumps([data["policies"], data["masks"]]):
        assert stale == fresh


@pytest.mark.parametrize("where", ["grantees", "except", "policy"])
def test_a_role_anywhere_among_the_grantees_hides_a_table_of_a_silent_store(where: str) -> None:
    mask = {"id": "m", "table": "lake.s.t", "column": "c", "kind": "null", "grantees": ["allUsers"]}
    policy = {"id": "p", "table": "lake.s.t", "filter": "TRUE", "grantees": ["allUsers"]}
    (policy if where == "policy" else mask)["grantees" if where == "policy" else where] = ["allUsers", "role:r"]
    engine = access({"policies": [policy], "masks": [mask]})
    assert engine.restrict(user("oidc~a"), table("s", "t"), NOBODY, stale=True).by == "store_stale"
    assert engine.restrict(user("oidc~a"), table("s", "u"), NOBODY, stale=True) is UNRESTRICTED


# --- the name of the caller ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["bigquery", "duckdb", "spark"])
@pytest.mark.parametrize(
    ("who", "members", "shown"),
    [
        (user("oidc~ann@x.example"), OIDC, "'ann@x.example'"),
        (user("oidc~o'neil"), OIDC, "'o''neil'"),
        (user("oidc~x' OR '1'='1"), OIDC, "'x'' OR ''1''=''1'"),
        (user("other~ann"), OIDC, "'other~ann'"),
        (user("oidc~ann"), Members("serviceAccount:{subject}@p.example", "oidc"), "'ann@p.example'"),
        (Principal("anonymous", ""), OIDC, "'anonymous'"),
    ],
)
def test_a_filter_with_the_caller_gets_a_literal(dialect: str, who: Principal, members: Members, shown: str) -> None:
    policy = {
        "id": "own",
        "table": "lake.s.t",
        "grantees": ["allUsers"],
        "filter": "mail = SESSION_USER()",
        "dialect": dialect,
    }
    rows = access({"policies": [policy]}, members).restrict(who, table("s", "t"), NOBODY).rows
    assert rows == Predicate(f"mail = {shown}")


@pytest.mark.parametrize("who", [user("oidc~a\nb"), user("oidc~\0caller\0"), Principal("role", "r")])
def test_a_caller_without_a_plain_name_sees_no_row_of_a_filter_with_the_caller(who: Principal) -> None:
    policies = [
        {
            "id": "own",
            "table": "lake.s.t",
            "grantees": ["allUsers"],
            "filter": "mail = SESSION_USER()",
            "dialect": "duckdb",
        },
        {"id": "two", "table": "lake.s.t", "grantees": ["user:nobody"], "filter": "x = 1"},
    ]
    assert access({"policies": policies}).restrict(who, table("s", "t"), NOBODY).rows == Predicate("false")


def test_the_caller_in_a_filter_for_trino_is_the_principal_of_the_decision() -> None:
    policy = {"id": "own", "table": "lake.s.t", "grantees": ["allUsers"], "filter": "mail = current_user"}
    rows = access({"policies": [policy]}).restrict(user("oidc~ann"), table("s", "t"), NOBODY).rows
    assert rows == Predicate("mail = 'ann'")


@pytest.mark.parametrize(
    ("who", "by_name", "by_groups"),
    [
        (user("oidc~ann", "eu"), "'ann'", "ARRAY['eu']"),
        (user("partner~ann", "eu"), "'partner~ann'", "ARRAY['partner~eu']"),
        (user("oidc~partner~ann", "partner~eu"), "'oidc~partner~ann'", "ARRAY['oidc~partner~eu']"),
        (Principal("user", "oidc~ann", bare=True), "'ann'", ""),
        (Principal("user", "oidc~ann", unknown=("groups",)), "'ann'", ""),
        (Principal("role", "etl"), "", ""),
        (Principal("anonymous", "", groups=("eu",)), "'anonymous'", "ARRAY['eu']"),
    ],
)
def test_no_principal_has_the_name_or_the_groups_of_another(who: Principal, by_name: str, by_groups: str) -> None:
    """Unknown groups, and the name of a role, hide the row and the value, negated too."""
    for text, wanted in (("mail <> current_user", by_name), ("NOT contains(current_groups(), mail)", by_groups)):
        entry = {"id": "own", "table": "lake.s.t", "grantees": ["allUsers"]}
        mask = {**entry, "column": "c", "kind": "expression", "expression": text}
        found = access({"policies": [{**entry, "filter": text}], "masks": [mask]}).restrict(
            who, table("s", "t"), NOBODY
        )
        assert found.rows is not None
        value = found.mask_column("c", "boolean")[0]
        assert value is not None
        if wanted:
            assert wanted in found.rows.expression
            assert wanted in value.expression
        else:
            assert (found.rows.expression, value.expression) == ("false", "CAST(NULL AS boolean)")


CLAIMS = '{"team":"o\'n","n":3,"list":["o"],"empty":"","odd":"a\\u2028"}'
ATTRIBUTED = Principal("user", "oidc~a", attributes=CLAIMS)


@pytest.mark.parametrize(
    ("text", "who", "wanted"),
    [
        ("mail = current_claim('team')", ATTRIBUTED, "mail = 'o''n'"),
        ("mail = CURRENT_CLAIM ( 'team' )", ATTRIBUTED, "mail = 'o''n'"),
        (
            "'current_claim' = current_claim('team')",
            Principal("user", "p~a", attributes=CLAIMS),
            "'current_claim' = 'o''n'",
        ),
        *(
            (f"NOT mail = current_claim('{name}')", ATTRIBUTED, "false")
            for name in ("n", "list", "empty", "odd", "x", "TEAM")
        ),
        ("mail <> current_claim('team')", user("oidc~a"), "false"),
        ("mail <> current_claim('team')", Principal("role", "etl"), "false"),
        ("mail <> current_claim('team')", replace(ATTRIBUTED, unknown=("attributes",)), "false"),
        ("mail <> current_claim('team')", replace(ATTRIBUTED, unknown=("attributes.team",)), "false"),
        (
            "contains(current_roles(), mail)",
            Principal("role", "etl"),
            "contains(CAST(ARRAY['etl'] AS array(varchar)), mail)",
        ),
        (
            "contains(current_roles(), mail)",
            Principal("user", "oidc~a", roles=("a", "b"), member_of=("b", "c")),
            "contains(CAST(ARRAY['a', 'b', 'c'] AS array(varchar)), mail)",
        ),
        ("NOT contains(current_roles(), mail)", Principal("user", "oidc~a", bare=True), "false"),
        ("NOT contains(current_roles(), mail)", Principal("user", "oidc~a", unknown=("member_of",)), "false"),
        ("NOT contains(current_roles(), mail)", Principal("user", "oidc~a", unknown=("roles",)), "false"),
    ],
)
def test_claims_and_roles_are_literals(text: str, who: Principal, wanted: str) -> None:
    """An unknown value hides the row and the value of a mask, negated too."""
    entry = {"id": "own", "table": "lake.s.t", "grantees": ["allUsers"]}
    mask = {**entry, "column": "c", "kind": "expression", "expression": text}
    found = access({"policies": [{**entry, "filter": text}], "masks": [mask]}).restrict(who, table("s", "t"), NOBODY)
    assert found.rows is not None
    value = found.mask_column("c", "boolean")[0]
    assert value is not None
    assert found.rows.expression == wanted
    assert value.expression == f"CAST({'NULL' if wanted == 'false' else wanted} AS boolean)"


def test_stored_roles_count_where_permits_of_cel_see_them() -> None:
    facts = Facts.from_changes("e", 1, [GrantAdded(Grant(("role", ("etl",)), "assignee", "user:oidc~a"))])
    policy = {"id": "own", "table": "lake.s.t", "grantees": ["allUsers"], "filter": "contains(current_roles(), mail)"}
    for stored, wanted in ((True, "'etl'"), (False, "")):
        engine = access({"policies": [policy]}, Members("user:{subject}", "oidc", stored_roles=stored))
        rows = engine.restrict(user("oidc~a"), table("s", "t"), facts).rows
        assert rows == Predicate(f"contains(CAST(ARRAY[{wanted}] AS array(varchar)), mail)")
        assert engine.restrict(user("oidc~a"), table("s", "t"), facts, stale=True).by == "store_stale"


@pytest.mark.parametrize("dialect", ["trino", "bigquery"])
def test_a_filter_with_a_nul_is_refused(dialect: str) -> None:
    policy = {
        "id": "own",
        "table": "lake.s.t",
        "grantees": ["allUsers"],
        "filter": "a = '\0caller\0'",
        "dialect": dialect,
    }
    with pytest.raises(PolicyError, match="NUL"):
        access({"policies": [policy]})


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("oidc~alice", "alice"),
        ("oidc~oidc~alice", "oidc~alice"),
        ("oidc~partner~x", "oidc~partner~x"),
        ("partner~x", "partner~x"),
    ],
)
def test_a_user_of_trino_has_trino_s_name_there(name: str, shown: str) -> None:
    members = Members("user:{subject}", "oidc", "", (), "oidc")
    assert members.caller(Principal("user", name), NOBODY).user == shown
