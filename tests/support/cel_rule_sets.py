"""Generated rule sets over all operations, with the groups of checks that they decide."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from pdp.engines.engine import Group
from pdp.model.checks import Arguments, Env, Principal, Resource
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
    st.builds("{} in {}".format, quoted, st.sampled_from(["roles", "actions"])),
    st.sampled_from(
        [
            "true",
            "false",
            "delegated",
            "roles[1]=='a'",
            "api.apiName=='a'",
            "api.nope==1",
            "roles.exists(r, path.startsWith(r))",
            "path==role+'.t'",
            "size(path) > 2",
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


@st.composite
def groups(draw: Any) -> tuple[Group, list[Resource]]:
    type, action = draw(st.sampled_from(sorted(CEL_CHECKS)))
    kind, name = draw(st.sampled_from([("user", "oidc~a"), ("user", "idp~a"), ("role", "a"), ("anonymous", "")]))
    principal = Principal(
        kind,
        name,
        draw(st.lists(quoted.map(lambda text: text[1:-1]), max_size=2).map(tuple)),
    )
    env = Env(draw(st.sampled_from(["", "a"])), 1, draw(st.sampled_from([(), ("a",), ("n", "ab")])))
    group = Group(
        principal,
        action,
        type,
        draw(st.sampled_from(["a", "w"])),
        draw(st.sampled_from(["main", "dev", "a", None])),
        draw(st.booleans()),
        env,
    )
    return group, draw(
        st.lists(
            st.builds(_resource, st.just(type), paths, st.sampled_from(["", "", "NAMESPACE"]), st.booleans()),
            min_size=1,
            max_size=5,
        )
    )


def _resource(type: str, path: tuple[str, ...], content_type: str, argued: bool) -> Resource:
    arguments = Arguments("t", Resource(type, "w", ("n", "t"))) if argued else Arguments()
    return Resource(type, "w", path, content_type=content_type, arguments=arguments)
