"""Requests on statements and filters: who asks, after evidence, and the rights that the uses of relations need."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import UNSET

from pdp.decision.bodies import make_acting_role, make_principal
from pdp.decision.plan import parent_of
from pdp.engines.row_access.members import Members
from pdp.errors import AssertionNotAllowed, InvalidArgument, TableDenied
from pdp.identity.evidence import judged_principal, own_principal
from pdp.model.question import Caller, Check, Principal, Question, Resource
from pdp.model.references import check_path, format_resource
from pdp.model.revision import new_id
from pdp.rewrite.errors import PARSE_ERROR, UNSUPPORTED_STATEMENT, RewriteRefused
from pdp.rewrite.process.messages import DIALECTS, LONGEST_SQL, RelationUse, SuppliedCatalog
from pdp.row_access.bodies import FilterBody, RewriteBody

_DEFAULT_PARTS: Final = 2
"""Parts of the place of short names: a catalog and a schema."""
READS: Final = {"table": "read_data", "view": "select", "table_or_view": "read_data"}
"""Type of a relation -> the action that reads it."""


class StatementRequest(msgspec.Struct, frozen=True):
    """Request of a caller for a principal. `started` is a time of `perf_counter`.

    `refused` is the reason against the request: evidence beyond the caller's rights. Empty without a reason.
    """

    caller: Caller
    surface: str
    principal: Principal
    acting_role: str | None
    id: str
    started: float
    refused: str = ""

    def question(self, action: str) -> Question:
        """Return the question for the right of the principal to an action."""
        return Question(self.principal, action, acting_role=self.acting_role)


def admitted(body: RewriteBody | FilterBody, caller: Caller, surface: str) -> StatementRequest:
    """Return the request with its principal, `refused` for evidence beyond the caller's rights.

    Raise AssertionNotAllowed for headers outside of development: their sender takes them for an identity.
    """
    principal, refused = _principal(body, caller)
    if body.catalog is not UNSET:
        refused = refused or _against_catalog(body.catalog, caller)
        if len(body.catalog.default) not in (0, _DEFAULT_PARTS):
            raise InvalidArgument("`catalog.default` is a catalog and a schema")
    role = make_acting_role(body.acting_role)
    return StatementRequest(caller, surface, principal, role, new_id(), time.perf_counter(), refused)


def _principal(body: RewriteBody | FilterBody, caller: Caller) -> tuple[Principal, str]:
    """Return the principal of a request, and the reason against the assertion; empty without a reason.

    The principal is that of the body, else that of headers in development, else the caller's own.
    """
    stated = caller.stated
    if stated is not None and stated.problem:
        raise AssertionNotAllowed(stated.problem)
    if body.principal is not UNSET:
        return judged_principal(caller, make_principal(body.principal))
    if stated is not None and stated.principal is not None and caller.own is None:
        return judged_principal(caller, stated.principal)
    return own_principal(caller), ""


def _against_catalog(catalog: SuppliedCatalog, caller: Caller) -> str:
    """Return the reason against a description of tables and views by a caller; empty without a reason."""
    if "properties" not in caller.may_assert:
        return f"caller `{caller.name}` may not assert properties: `catalog` describes tables"
    if any(view.owner for view in catalog.views.values()) and "delegated" not in caller.may_assert:
        return f"caller `{caller.name}` may not assert delegated: a view of `catalog` has an owner"
    return ""


def bound_text(body: RewriteBody) -> None:
    """Raise RewriteRefused for a text that no process needs to see."""
    if body.dialect not in DIALECTS:
        raise unknown_dialect(body.dialect)
    if len(body.sql) > LONGEST_SQL:
        raise RewriteRefused(PARSE_ERROR, f"the text has more than {LONGEST_SQL} characters")


def unknown_dialect(dialect: str) -> RewriteRefused:
    """Return the refusal of a dialect."""
    return RewriteRefused(UNSUPPORTED_STATEMENT, f"the dialect `{dialect[:40]}` is none of {', '.join(DIALECTS)}")


def checks_of_uses(request: StatementRequest, uses: Sequence[RelationUse], members: Members) -> Iterator[Check]:
    """Yield the checks of the uses of a statement, for the principal or for the owner of a view.

    Raise TableDenied for an owner who is no user.
    """
    for use in uses:
        kind = "view" if use.is_view else "table"
        relation = Resource(kind, use.name[0], check_path(kind, use.name[1:]))
        # INVARIANT: an acting role goes with the principal of the request alone, never with an author or owner.
        question: Callable[[str], Question] = request.question
        if use.author:
            type, _, name = use.author.partition(":")
            question = partial(_delegated, request, Principal(type, name))
        elif use.owner:
            question = partial(_delegated, request, _owner(members, use.owner))
        if use.role in ("create", "replace"):
            yield Check(question(f"create_{kind}"), (parent_of(relation),), (0,))
            if use.role == "replace":
                yield Check(question("drop"), (relation,), (0,))
        elif use.role == "write":
            yield Check(question("write_data"), (relation,), (0,))
        else:
            yield Check(question(READS[kind]), (relation,), (0,))


def _delegated(request: StatementRequest, owner: Principal, action: str) -> Question:
    """Return the question of a request about another principal, with all else that the request says."""
    return msgspec.structs.replace(request.question(action), principal=owner, delegated=True, acting_role=None)


def _owner(members: Members, member: str) -> Principal:
    """Return the user behind a member; raise TableDenied if the template of members does not tell the user."""
    found = members.principal_of(member)
    if found is None:
        raise TableDenied(f"the owner `{member}` of a view is no user of `row_access.member.template`")
    return found


def recorded_use(use: RelationUse) -> dict[str, Any]:
    """Return the entry of a used relation in the record of a rewriting."""
    given = {"as": use.author or use.owner, "policies": use.policies, "masks": use.masks}
    kept = {key: value for key, value in given.items() if value}
    kind = "view" if use.is_view else "table"
    return {"table": format_resource(Resource(kind, use.name[0], use.name[1:])), "use": use.role, **kept}
