"""A fence that is taken away is noticed: the tests of isolation turn red (Q2)."""

from collections.abc import Callable

import pytest
from django.db import connections

from tenants.models import Membership, Role, Tenant
from tenants.rls import CURRENT_TENANT
from tenants.scope import tenant_scope
from tests import environment
from tests.tenants import test_row_security as checks
from tests.tenants.test_row_security import superuser, two

__all__ = ["two"]  # a fixture

APP = f"{environment.PREFIX}app"
SAME = f"(tenant_id = {CURRENT_TENANT})"
# What is done to the table of memberships, how it is undone, and who notices.
MUTATIONS: dict[str, tuple[str, str, Callable[..., None]]] = {
    "row security off": (
        "ALTER TABLE memberships DISABLE ROW LEVEL SECURITY",
        "ALTER TABLE memberships ENABLE ROW LEVEL SECURITY",
        checks.test_row_security_is_on_and_forced_with_both_checks_everywhere,
    ),
    "not forced": (
        "ALTER TABLE memberships NO FORCE ROW LEVEL SECURITY",
        "ALTER TABLE memberships FORCE ROW LEVEL SECURITY",
        checks.test_row_security_is_on_and_forced_with_both_checks_everywhere,
    ),
    "no policy": (
        "DROP POLICY memberships_tenant ON memberships",
        f'CREATE POLICY memberships_tenant ON memberships TO "{APP}", "{environment.PREFIX}owner" '
        f"USING {SAME} WITH CHECK {SAME}",
        checks.test_row_security_is_on_and_forced_with_both_checks_everywhere,
    ),
    "a policy that lets all through": (
        "ALTER POLICY memberships_tenant ON memberships USING (true) WITH CHECK (true)",
        f"ALTER POLICY memberships_tenant ON memberships USING {SAME} WITH CHECK {SAME}",
        checks.test_every_policy_says_the_same,
    ),
    "a right too many": (
        f'GRANT TRUNCATE ON memberships TO "{APP}"',
        f'REVOKE TRUNCATE ON memberships FROM "{APP}"',
        checks.test_the_runtime_role_has_no_right_that_skips_the_policies,
    ),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_catalogue_shows_it(db, mutation):
    done, undone, notices = MUTATIONS[mutation]
    with superuser() as admin:
        notices(None)  # positive control
        admin.execute(done)
        try:
            with pytest.raises(AssertionError):
                notices(None)
        finally:
            connections["default"].close()
            admin.execute(undone)
    notices(None)


@pytest.mark.parametrize("mutation", ["row security off", "a policy that lets all through"])
def test_rows_show_it(two: tuple[Tenant, Tenant], mutation):
    done, undone, _ = MUTATIONS[mutation]
    checks.test_inside_a_scope_only_that_tenant_exists(two)
    with tenant_scope(two[1]):
        Membership.objects.update(role=Role.ADMIN)
    with superuser() as admin:
        admin.execute(done)
        try:
            with pytest.raises(AssertionError):
                checks.test_inside_a_scope_only_that_tenant_exists(two)
        finally:
            connections["default"].close()
            admin.execute(undone)
