from datetime import timedelta

import pytest

from services.gateway.core.access import FLEET, Principal, Role, Token
from tests.support.builders import NOON


def a_principal(role: Role, tenant: str = "acme") -> Principal:
    return Principal("token_1", "ada", role, tenant)


@pytest.mark.parametrize(("role", "below"), [(role, list(Role)[: index + 1]) for index, role in enumerate(Role)])
def test_a_role_has_all_before_it(role: Role, below: list[Role]) -> None:
    assert [other for other in Role if a_principal(role).is_at_least(other)] == below


def test_a_tenant_s_token_reaches_its_tenant_alone() -> None:
    reached = [
        (owner, asked)
        for owner in ("acme", FLEET)
        for asked in ("acme", "zoo", FLEET)
        if a_principal(Role.ADMIN, owner).reaches(asked)
    ]
    assert reached == [("acme", "acme"), (FLEET, "acme"), (FLEET, "zoo"), (FLEET, FLEET)]


def test_nobody_gives_more_than_they_have() -> None:
    assert a_principal(Role.ADMIN).may_give(Role.ADMIN, "acme")
    assert not a_principal(Role.ADMIN).may_give(Role.VIEWER, FLEET)
    assert not a_principal(Role.OPERATOR, FLEET).may_give(Role.VIEWER, "acme")


def test_a_token_that_is_revoked_or_expired_opens_nothing() -> None:
    good = Token("token_1", "ada", Role.VIEWER, "acme", NOON + timedelta(seconds=1), None)
    assert good.principal(NOON) == a_principal(Role.VIEWER)
    assert good.principal(NOON + timedelta(seconds=1)) is None
    assert Token("token_1", "ada", Role.VIEWER, "acme", None, NOON).principal(NOON) is None
