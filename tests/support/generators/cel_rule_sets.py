"""Generated rule sets over all operations, with the groups of checks that they decide."""

from __future__ import annotations

from functools import partial
from typing import Any

from hypothesis import strategies as st

from pdp.engines.cel.engine import CelEngine, CelForbid
from pdp.engines.engine import EngineQuestion
from pdp.model.question import Arguments, Principal, Question, RequestContext, Resource
from pdp.model.vocabulary import CEL_CHECKS

OPS = sorted({check.op for checks in CEL_CHECKS.values() for check in checks})
TEXTS = ["a", "ab", "n", "n.t", "n.", "", "main", "dev", "NAMESPACE"]
quoted = st.sampled_from(TEXTS).map("'{}'".format)
atoms = st.one_of(
    st.builds("op=='{}'".format, st.sampled_from(OPS)),
    st.builds(
        "op in [{}]".format,
        st.lists(st.sampled_from(OPS), max_size=4).map(lambda ops: ", ".join(f"'{op}'" for op in ops)),
    ),
    st.builds("{}=={}".format, st.sampled_from(["role", "ref", "path", "contentType", "warehouse", "type"]), quoted),
    st.builds("{}=={}".format, quoted, st.sampled_from(["role", "ref", "path"])),
    st.builds("{} in [{},{}]".format, st.sampled_from(["role", "ref", "path"]), quoted, quoted),
    st.builds(
        "{}.{}({})".format,
        st.sampled_from(["role", "ref", "path"]),
        st.sampled_from(["startsWith", "endsWith", "contains"]),
        quoted,
    ),
    st.builds(
        "{}.matches({})".format,
        st.sampled_from(["ref", "path"]),
        st.sampled_from(["'^n'", "'^n[.]t$'", "'n.*'", "'^(a|ab)$'", "'['", "'(?i)N'"]),
    ),
    st.builds("{} in {}".format, quoted, st.sampled_from(["roles", "actions", "groups"])),
    st.builds("action=='{}'".format, st.sampled_from(sorted({action for _, action in CEL_CHECKS}))),
    st.builds("{}.a=={}".format, st.sampled_from(["attributes", "properties"]), quoted),
    st.sampled_from(
        [
            "true",
            "false",
            "delegated",
            "roles[1]=='a'",
            "api.apiName=='a'",
            "api.nope==1",
            "roles.exists(r, path.startsWith(r))",
            "size(roles) == 1",
            "roles.all(r, r != 'a')",
            "('a' in roles) == ('n' in roles)",
            "path==role+'.t'",
            "size(path) > 2",
            "attributes.level > 2",
            "has(properties.a) || delegated",
            "'a' in properties && path.startsWith('n')",
            "now < timestamp('2026-01-01T00:00:00Z')",
            "now.getFullYear() == 2026 && path=='n'",
        ]
    ),
)
rule = st.recursive(
    atoms,
    lambda inner: (
        st.builds("({})".format, st.lists(inner, min_size=2, max_size=3).map(" && ".join))
        | st.builds("({})".format, st.lists(inner, min_size=2, max_size=3).map(" || ".join))
        | st.builds("!{}".format, inner.map("({})".format))
        | st.builds("({} ? {} : {})".format, inner, inner, inner)
    ),
    max_leaves=6,
)
rule_sets = st.dictionaries(st.sampled_from([f"r{number}" for number in range(12)] + ["A", "_"]), rule, max_size=10)
paths = st.lists(st.sampled_from(["a", "ab", "n", "t", "n.t", ""]).filter(bool), min_size=1, max_size=3).map(tuple)


_kinds = st.tuples(
    st.sampled_from(["", "", "NAMESPACE"]), st.sampled_from([None, None, {"a": "ab"}, {"b": {"a": [1]}, "a": "n"}])
)
"""Types of content with properties."""


UNKNOWN = [
    (), (), (), ("roles",), ("groups",), ("attributes",), ("attributes.level",), ("groups", "member_of", "roles"),
    ("attributes.a", "groups"), ("attributes", "groups", "roles"),
]  # fmt: skip
"""Evidence that nobody knows."""


KINDS: list[Any] = [CelEngine, CelForbid, partial(CelEngine, stored=True), partial(CelForbid, stored=True)]
"""Makers of engines of rules."""
_roles = st.lists(st.sampled_from(TEXTS), max_size=2).map(tuple)


@st.composite
def groups(draw: Any) -> tuple[EngineQuestion, list[Resource]]:
    type, action = draw(st.sampled_from(sorted(CEL_CHECKS)))
    kind, name = draw(st.sampled_from([("user", "oidc~a"), ("user", "idp~a"), ("role", "a"), ("anonymous", "")]))
    principal = Principal(
        kind,
        name,
        draw(st.lists(st.sampled_from(TEXTS), max_size=2).map(tuple)),
        draw(st.lists(st.sampled_from(TEXTS), max_size=2).map(tuple)),
        draw(st.sampled_from(["{}", '{"a":"ab","level":3}', '{"level":[null,1e3,9223372036854775808]}'])),
        unknown=draw(st.sampled_from(UNKNOWN)),
    )
    now = draw(st.sampled_from([1_760_000_000, 1_770_000_000]))
    env = RequestContext(draw(st.sampled_from(["", "a"])), 1, draw(st.sampled_from([(), ("a",), ("n", "ab")])), now)
    group = EngineQuestion(
        Question(principal, action, delegated=draw(st.booleans()), context=env),
        type,
        draw(st.sampled_from(["a", "w"])),
        draw(st.sampled_from(["main", "dev", "a", None])),
        draw(_roles | _roles | _roles | st.none()),
        draw(_roles),
    )
    return group, draw(
        st.lists(
            st.builds(_resource, st.just(type), paths, _kinds, st.booleans()),
            min_size=1,
            max_size=5,
        )
    )


def _resource(type: str, path: tuple[str, ...], kind: tuple[str, dict[str, Any] | None], argued: bool) -> Resource:
    arguments = Arguments("t", Resource(type, "w", ("n", "t"))) if argued else Arguments()
    content_type, properties = kind
    return Resource(type, "w", path, content_type=content_type, properties=properties, arguments=arguments)
