"""Requests of the rewriter as JSON, and their answers. Knows no transport."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from pdp.engines.row_access.policies import PolicyBody, read_documents
from pdp.errors import InvalidArgument
from pdp.rewrite.catalog import Catalog, catalog_of
from pdp.rewrite.errors import RewriteRefused
from pdp.rewrite.explanation import ExplainedStatement, explain_statement
from pdp.rewrite.identity import CallerIdentity
from pdp.rewrite.policies import PolicySet, filter_policy, policy_set_of
from pdp.rewrite.rewriter import Rewriter


class RewriteRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Statement to rewrite for an IAM member. `policies` replace all policies of the named tables."""

    sql: str
    dialect: str
    principal: str
    groups: tuple[str, ...] = ()
    authenticated: bool = True
    policies: tuple[PolicyBody, ...] = ()

    def caller(self) -> CallerIdentity:
        """Return the caller."""
        named = (group.strip().removeprefix("group:") for group in self.groups)
        return CallerIdentity(self.principal.strip(), tuple(filter(None, named)), authenticated=self.authenticated)


class RewriteService:
    """Rewriter with the policies and the catalog of files."""

    def __init__(self, catalog: Catalog, policies: PolicySet, rewriter: Rewriter) -> None:
        self._catalog, self._policies, self._rewriter = catalog, policies, rewriter

    @property
    def default(self) -> tuple[str, ...]:
        """Return the catalog and schema of short names."""
        return self._catalog.default

    @cached_property
    def short_names(self) -> frozenset[str]:
        """Return the last parts of the names of all relations, in lower case."""
        return frozenset(relation.name[-1].lower() for relation in self._catalog)

    @cached_property
    def schema_names(self) -> frozenset[str]:
        """Return the first parts of the schemas of all relations, in lower case."""
        return frozenset(relation.name[1].lower() for relation in self._catalog if len(relation.name) > 1)

    def answer(self, body: bytes | str) -> dict[str, Any]:
        """Return the answer to one request: `sql`, or `error` with a code and a message."""
        try:
            request = msgspec.json.decode(body, type=RewriteRequest)
        except (msgspec.ValidationError, msgspec.DecodeError, RecursionError) as error:
            return _error("invalid_argument", str(error))
        try:
            return {"sql": self.rewrite(request)}
        except RewriteRefused as error:
            return _error(error.rap, str(error))

    def rewrite(self, request: RewriteRequest) -> str:
        """Return the statement of a request with row access enforced; raise RewriteRefused."""
        policies = self._policies
        if request.policies:
            catalog = self._catalog
            new = (filter_policy(body, catalog.default, catalog.containers) for body in request.policies)
            policies = policies.replaced(new)
        return self._rewriter.rewrite(request.sql, request.dialect, request.caller(), policies).sql

    def explain(self, request: RewriteRequest) -> ExplainedStatement:
        """Return the statement with each relation, and why policies and masks count or not; raise RewriteRefused."""
        policies = self._policies
        return explain_statement(self._rewriter, request.sql, request.dialect, request.caller(), policies)


def service_of_files(paths: Sequence[Path]) -> RewriteService:
    """Return the service of policy files; raise PolicyError or InvalidArgument for an unusable file."""
    documents = [named.document for named in read_documents(paths)]
    try:
        catalog = catalog_of(documents)
        policies = policy_set_of(documents)
    except RewriteRefused as error:
        raise InvalidArgument(str(error)) from None
    return RewriteService(catalog, policies, Rewriter(catalog))


def _error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


def answers(service: RewriteService, lines: Iterable[bytes]) -> Iterable[bytes]:
    """Yield the answer to each line that is not blank, in order."""
    return (msgspec.json.encode(service.answer(line)) for line in lines if line.strip())
