"""Names of users in policies: no two users share one."""

from hypothesis import given
from hypothesis import strategies as st

from pdp.model.question import Principal
from pdp.model.references import policy_name

PROVIDERS = ("a", "b", "a-b")
users = st.builds(
    lambda idp, subject: Principal("user", f"{idp}~{subject}"), st.sampled_from(PROVIDERS), st.text("ab~-@", min_size=1)
)


@given(users, users, st.sampled_from(PROVIDERS))
def test_no_two_users_share_a_name(one: Principal, other: Principal, provider: str) -> None:
    assert (policy_name(one, provider) == policy_name(other, provider)) == (one == other)


def test_only_users_have_a_name() -> None:
    assert policy_name(Principal("role", "a~b"), "a") == ""
    assert policy_name(Principal("anonymous", ""), "a") == ""
