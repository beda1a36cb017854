"""Forbids by `action` and `actions` bind whatever name a question has: a catalog's, or that of a check of Nessie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from support.generators.generated_pdps import decide, make_pdp

from pdp.decision.service import Pdp
from pdp.engines.grants.model import NESSIE
from pdp.model.vocabulary import CEL_CHECKS, CONTENT_CHECKS, CREATE_ACTION, DATASET_CHANGES, KIN, RENAMES

ANN = "user:oidc~ann"
GRANTS = [{"principal": ANN, "privilege": "ownership", "object": "warehouse:nes"}]
CONFIG = {
    "warehouses": {"nes": {"default_ref": "main", "kind": "nessie"}},
    "authorities": {"default": {"engines": ["grants"]}},
}
TYPES = ("namespace", "table", "view", "generic_table", "dataset")
TYPES_OF_CONTENT = {"ICEBERG_TABLE": "table", "DELTA_LAKE_TABLE": "table", "ICEBERG_VIEW": "view", "NAMESPACE": "namespace"}  # fmt: skip
WORDS = {"CREATE_ENTITY": "CATALOG_CREATE_ENTITY", "UPDATE_ENTITY": "CATALOG_UPDATE_ENTITY", "DELETE_ENTITY": "CATALOG_DROP_ENTITY"}  # fmt: skip
ENDS = {"DELETE_ENTITY": "CATALOG_RENAME_ENTITY_FROM", "CREATE_ENTITY": "CATALOG_RENAME_ENTITY_TO"}
RAW = [(type, op) for type in TYPES for op in sorted(CONTENT_CHECKS)]


def pdp_of(rule: str) -> Pdp:
    return make_pdp(CONFIG, {}, GRANTS, {"lock": rule})


def allowed(pdp: Pdp, checks: Sequence[Any]) -> list[bool]:
    return [bool(one) for one in decide(pdp, checks).allowed]


def ask(action: str, resource: Any, sent: Sequence[str] = (), **arguments: Any) -> dict[str, Any]:
    context = {"actions": list(sent), "arguments": arguments}
    return {"principal": ANN, "action": action, "resource": resource, "context": context}


def content(kind: str, path: Sequence[str]) -> dict[str, Any]:
    return {"type": "content", "warehouse": "nes", "path": list(path), "contentType": kind}


def judged_as(type: str, op: str) -> str:
    """Return the catalog action as which grants judge a raw check."""
    return NESSIE[op].get(type, NESSIE[op][""]).removeprefix("up.")


@pytest.mark.parametrize(("type", "op"), RAW)
def test_a_forbid_by_action_binds_the_raw_check_that_does_the_same(type: str, op: str) -> None:
    kin = KIN[type, op]
    assert judged_as(type, op) in kin
    for action in kin:
        pdp = pdp_of(f"action == '{action}' && path.startsWith('keep.')")
        kept, other = f"{type}:nes/keep/t", f"{type}:nes/free/t"
        checks = [
            ask(op, kept),
            ask(op, other),
            ask(op, kept, [*WORDS.values()]),
            ask(op, kept, ["META_SET_PROPERTIES"]),
        ]
        many = {"principal": ANN, "action": op, "resources": [other, kept, f"{type}:nes/keep/u"]}
        assert allowed(pdp, [*checks, many]) == [False, True, False, False, True, False, False], action
        others = [each for each in sorted(CONTENT_CHECKS) if action not in KIN[type, each]]
        assert all(allowed(pdp, [ask(each, kept) for each in others])), action


@pytest.mark.parametrize("kind", [*TYPES_OF_CONTENT, ""])
@pytest.mark.parametrize("op", sorted(CONTENT_CHECKS))
def test_content_is_judged_by_its_type(kind: str, op: str) -> None:
    """A check that does not say its type of content may be about any."""
    for type in ("table", "view", "namespace"):
        action = judged_as(type, op)
        pdp = pdp_of(f"action == '{action}' && path.startsWith('keep.')")
        same = kind == "" or action in KIN[TYPES_OF_CONTENT[kind], op]
        checks = [ask(op, content(kind, ("keep", "t"))), ask(op, content(kind, ("free", "t")))]
        assert allowed(pdp, checks) == [not same, True], (action, kind)


def test_a_rename_at_its_ends_is_a_rename() -> None:
    for type in TYPES:
        for action in sorted(RENAMES):
            pdp = pdp_of(f"action == '{action}' && path.startsWith('keep.')")
            place = f"{type}:nes/keep/t"
            checks = [ask(op, place, sent) for op, mark in ENDS.items() for sent in ((mark,), ())]
            known = (type, action) in CEL_CHECKS
            assert allowed(pdp, checks) == [not known, True, not known, True], (type, action)


def test_a_forbid_by_the_name_of_nessie_binds_as_before() -> None:
    for type, op in RAW:
        pdp = pdp_of(f"action == '{op}' && path.startsWith('keep.')")
        assert allowed(pdp, [ask(op, f"{type}:nes/keep/t"), ask(op, f"{type}:nes/free/t")]) == [False, True]


def changes() -> Iterator[tuple[dict[str, Any], str]]:
    """Yield a check without `actions` for each action that changes an object in `keep`, and the check of Nessie."""
    for (type, action), asked in sorted(CEL_CHECKS.items()):
        op = asked[-1].op
        if op not in WORDS or action in RENAMES or type in ("warehouse", "content"):
            continue
        if action in CREATE_ACTION.values():
            yield ask(action, "namespace:nes/keep", name="t"), op
        else:
            yield ask(action, f"{type}:nes/keep/t"), op


CHANGES = list(changes())
READS = [ask(op, "table:nes/keep/t") for op in ("READ_ENTITY_VALUE", "READ_CONTENT_KEY", "read_data", "get_metadata")]


@pytest.mark.parametrize("op", sorted(WORDS))
def test_a_forbid_on_actions_binds_where_nobody_sends_any(op: str) -> None:
    for test in (f"'{WORDS[op]}' in actions", f"actions.exists(a, a == '{WORDS[op]}')"):
        pdp = pdp_of(f"{test} && role == 'ann'")
        for one, of in CHANGES:
            if test.startswith("'") or of == op:
                assert allowed(pdp, [one]) == [of != op], (test, one)
        assert all(allowed(pdp, READS))
        sent = [
            one | {"context": one["context"] | {"actions": ["CATALOG_REGISTER_ENTITY", "META_X"]}} for one, _ in CHANGES
        ]
        assert all(allowed(pdp, sent)), "the sender names the operation"


def test_a_forbid_on_actions_still_binds_where_they_lack_a_word() -> None:
    pdp = pdp_of("op in ['CREATE_ENTITY', 'UPDATE_ENTITY', 'DELETE_ENTITY'] && !('CATALOG_CREATE_ENTITY' in actions)")
    assert not any(allowed(pdp, [one for one, _ in CHANGES]))


@pytest.mark.parametrize("word", ["META_SET_LOCATION", "SNAP_OP_DELETE"])
def test_what_an_update_changes_is_unknown_unless_it_is_sent(word: str) -> None:
    updates = [one for one, op in CHANGES if op == "UPDATE_ENTITY"]
    others = [one for one, op in CHANGES if op != "UPDATE_ENTITY"]
    assert updates
    pdp = pdp_of(f"'{word}' in actions && path.startsWith('keep.')")
    found = decide(pdp, updates)
    assert not any(found.allowed)
    assert set(found.errors.values()) == {("lock",)}
    assert all(allowed(pdp, [*others, *READS, ask("commit", "table:nes/free/t")]))
    for sent, wanted in (
        (["META_ADD_SCHEMA"], True),
        (["META_ADD_SCHEMA", word], False),
        (["CATALOG_UPDATE_ENTITY"], False),
    ):
        told = [one | {"context": one["context"] | {"actions": sent}} for one in updates]
        assert set(allowed(pdp, told)) == {wanted}, sent


def test_a_permit_sees_neither() -> None:
    """A rule that permits must know what it permits: a raw check has its own name, and the words that are sent."""
    config = CONFIG | {"authorities": {"default": {"engines": ["cel"]}}}
    commits = "op in ['VIEW_REFERENCE', 'COMMIT_CHANGE_AGAINST_REFERENCE']"
    pdp = make_pdp(config, {"a": commits, "b": "action == 'drop' && op != 'DELETE_ENTITY'", "c": "'CATALOG_DROP_ENTITY' in actions", "d": "'META_X' in actions"})  # fmt: skip
    checks = [
        ask("DELETE_ENTITY", "table:nes/keep/t"),
        ask("drop", "table:nes/keep/t"),
        ask("commit", "table:nes/keep/t"),
    ]
    assert allowed(pdp, checks) == [False] * 3


# --- grants that include others --------------------------------------------------------------------------------------
BELOW = "manage_grants manage_refs manage_tags apply"
"""What an administrator of a project has on the objects below alone."""
PRIVILEGED = {  # privilege that is granted, privileges that it includes
    "table": {"ownership": "manage_grants modify select describe", "modify": "select describe", "select": "describe", "describe": "", "pass_grants": ""},
    "namespace": {"ownership": "manage_grants manage_refs modify select describe create", "create": "describe", "manage_grants": ""},
    "role": {"ownership": "assignee", "assignee": ""},
    "tag": {"ownership": "apply", "apply": ""},
    "project": {
        "project_admin": f"security_admin data_admin role_creator tag_creator describe select create modify {BELOW}",
        "modify": "select describe", "create": "describe", "data_admin": "create describe modify select manage_refs",
        "security_admin": "role_creator tag_creator describe manage_grants manage_tags apply",
    },
    "server": {
        "operator": f"project_admin security_admin data_admin role_creator tag_creator describe select create modify {BELOW}", "admin": "",
    },
}  # fmt: skip
PLACES = {
    "table": "table:nes/s/t", "namespace": "namespace:nes/s", "role": "role:r", "tag": "tag:g", "project": "project:p", "server": "server",
}  # fmt: skip
ROOT = "user:oidc~root"


def granting(privilege: str) -> str:
    return "change_ownership" if privilege == "ownership" else f"grant_{privilege}"


@pytest.mark.parametrize("type", PRIVILEGED)
def test_a_grant_is_asked_as_every_grant_that_it_includes(type: str) -> None:
    config = {**CONFIG, "identity": {"instance_admins": [ROOT]}}
    for privilege, included in PRIVILEGED[type].items():
        for other in {name for names in PRIVILEGED[type].values() for name in names.split()} | PRIVILEGED[type].keys():
            pdp = make_pdp(config, {}, [], {"lock": f"action == '{granting(other)}'"})
            check = {"principal": ROOT, "action": granting(privilege), "resource": PLACES[type]}
            binds = other == privilege or other in included.split()
            assert allowed(pdp, [check, check]) == [not binds] * 2, (privilege, other)


ON_TYPES = [
    "contentType == 'ICEBERG_VIEW'",
    "contentType in ['ICEBERG_VIEW', 'NAMESPACE'] && role == 'ann'",
    "contentType.startsWith('ICEBERG_')",
    "!(contentType == '') && ref == 'main'",
    "size(contentType) > 3 && op != 'x'",
]


@pytest.mark.parametrize("more", ["", " && path.startsWith('keep.')", " && !delegated"])
@pytest.mark.parametrize("test", ON_TYPES)
@pytest.mark.parametrize("op", sorted(CONTENT_CHECKS))
def test_a_forbid_on_the_type_of_content_binds_content_of_any_type(op: str, test: str, more: str) -> None:
    pdp = pdp_of(test + more)
    unsaid, view, kept = (content(kind, ("keep", "t")) for kind in ("", "ICEBERG_VIEW", "x"))
    del unsaid["contentType"]
    many = {"principal": ANN, "action": op, "resources": [unsaid, view, unsaid | {"path": ["free", "t"]}]}
    free = bool(more.startswith(" && path"))
    short = "startsWith('I" in test or test.startswith(("contentType ==", "contentType in"))
    for _ in range(2):
        found = decide(pdp, [ask(op, unsaid), ask(op, view), ask(op, kept), many])
        rest = [short or "size" in test, False, False, free]
        assert [bool(one) for one in found.allowed] == [False, False, *rest], (op, test)
        assert found.errors[0] == ("lock",)


def test_a_permit_sees_no_type_where_a_check_says_none() -> None:
    """So does Nessie: its rules see an empty text."""
    config = CONFIG | {"authorities": {"default": {"engines": ["cel"]}}}
    pdp = make_pdp(config, {"may": "contentType == ''", "look": "op == 'VIEW_REFERENCE'"}, [], {})
    assert allowed(pdp, [ask("DELETE_ENTITY", {"type": "content", "warehouse": "nes", "path": ["a"]})]) == [True]


@pytest.mark.parametrize("action", DATASET_CHANGES)
def test_a_forbid_of_commits_binds_each_change_of_a_dataset(action: str) -> None:
    checks = [ask(action, f"dataset:nes/{path}") for path in ("keep/t", "free/t")]
    assert allowed(pdp_of("false"), checks) == [True, True]
    for rule in ("action == 'commit'", "op == 'UPDATE_ENTITY'", "op == 'catalog:" + action + "'"):
        assert allowed(pdp_of(f"{rule} && path.startsWith('keep.')"), checks) == [False, True], rule
    assert allowed(pdp_of("action == 'drop' && path.startsWith('keep.')"), checks) == [True, True]
