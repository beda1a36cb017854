"""DDL on row access policies as a part of rewriting: the statement is carried out, and nothing is left to execute."""

from __future__ import annotations

from collections.abc import Sequence

from pdp.decision.turns import run_aside
from pdp.errors import InvalidArgument
from pdp.management.codec import make_requester
from pdp.management.row_policies import RowPolicyService
from pdp.model.question import Caller
from pdp.row_access.bodies import RewriteBody, RewriteResult


class StatementExecutor:
    """Executor of statements for the principal of a request."""

    def __init__(self, rules: RowPolicyService) -> None:
        self._rules = rules

    async def execute(self, body: RewriteBody, caller: Caller, default: Sequence[str]) -> RewriteResult:
        """Carry out the statement of a body; raise PdpError. `default` completes the name of the table."""
        from pdp.rewrite.policy_statements import read_policy_statement  # noqa: PLC0415  its parser of SQL takes 30 MB

        statement = await run_aside(read_policy_statement, body.sql)
        if statement is None:
            raise InvalidArgument("no statement on row access policies")
        requester = make_requester(caller, body.principal, body.acting_role, body.consistency)
        result = await self._rules.execute(requester, statement, default)
        return RewriteResult("", result.changed, result.revision, requester.id, result.operation)
