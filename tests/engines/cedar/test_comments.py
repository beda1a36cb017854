"""Comments of Cedar end at a line feed and at a carriage return."""

from __future__ import annotations

import pytest

from pdp.engines.cedar.tokens import split_policies

FORBID = "forbid(principal, action, resource);"
PERMIT = "permit(principal, action, resource);"


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_a_comment_hides_no_policy(end: str) -> None:
    found = split_policies(f"// note{end}{FORBID}{end}{PERMIT} // more{end}")
    assert [policy.text for policy in found] == [FORBID, PERMIT]
