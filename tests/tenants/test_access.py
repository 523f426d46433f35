"""Invitations, roles and sign-in links as rules; their pages are tested in tests/pages."""

import datetime as dt
import threading

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from tenants import access
from tenants.models import AuditEvent, Invitation, Membership, Role, Tenant, User
from tenants.scope import tenant_scope
from tests.factories import MembershipFactory, TenantFactory, UserFactory


@pytest.fixture
def admin(db) -> Membership:
    with tenant_scope(TenantFactory(slug="acme")):
        return MembershipFactory(role=Role.ADMIN)


def invite(admin: Membership, role: str = Role.OPERATOR) -> str:
    with tenant_scope(admin.tenant_id):
        return access.invite(role=role, created_by=admin.user)[1]


def test_an_invitation_lets_one_person_in_with_its_role(admin):
    secret = invite(admin)
    user = UserFactory()
    membership = access.accept_invitation(invitation=access.find_invitation(secret), user=user)
    assert (membership.role, membership.tenant_id) == (Role.OPERATOR, admin.tenant_id)
    assert access.membership_in("acme", user) == membership
    assert access.find_invitation(secret) is None
    with tenant_scope(admin.tenant_id):
        assert AuditEvent.objects.filter(action="member.joined", actor=user).exists()


def test_of_two_people_with_one_link_one_gets_in(admin):
    found = access.find_invitation(invite(admin))
    assert access.accept_invitation(invitation=found, user=UserFactory()) is not None
    assert access.accept_invitation(invitation=found, user=UserFactory()) is None


def test_an_invitation_never_lowers_a_role(admin):
    secret = invite(admin, role=Role.VIEWER)
    assert access.accept_invitation(invitation=access.find_invitation(secret), user=admin.user).role == Role.ADMIN


def test_an_invitation_ends_with_its_time_and_its_revocation(admin):
    late, revoked = invite(admin), invite(admin)
    with tenant_scope(admin.tenant_id):
        first, second = Invitation.objects.order_by("pk")
        Invitation.objects.filter(pk=first.pk).update(expires_at=timezone.now() - dt.timedelta(seconds=1))
        access.revoke_invitation(invitation=second, actor=admin.user)
    assert access.find_invitation(late) is None
    assert access.find_invitation(revoked) is None
    assert access.find_invitation("no such secret") is None


def test_a_tenant_keeps_its_last_admin(admin):
    with tenant_scope(admin.tenant_id):
        with pytest.raises(access.LastAdmin):
            access.change_role(membership=admin, role=Role.VIEWER, actor=admin.user)
        with pytest.raises(access.LastAdmin):
            access.remove_member(membership=admin, actor=admin.user)
        second = MembershipFactory(role=Role.ADMIN)
        access.change_role(membership=admin, role=Role.VIEWER, actor=second.user)
        assert Membership.objects.get(pk=admin.pk).role == Role.VIEWER


def test_of_two_admins_who_leave_at_once_one_stays(admin):
    with tenant_scope(admin.tenant_id):
        second = MembershipFactory(role=Role.ADMIN)
    gate = threading.Barrier(2)
    outcomes: list[str] = []

    def leave(membership: Membership) -> None:
        gate.wait()
        try:
            with tenant_scope(membership.tenant_id):
                access.remove_member(membership=membership, actor=membership.user)
            outcomes.append("left")
        except access.LastAdmin:
            outcomes.append("stayed")
        finally:
            connection.close()

    threads = [threading.Thread(target=leave, args=[each]) for each in (admin, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["left", "stayed"]
    with tenant_scope(admin.tenant_id):
        assert Membership.objects.filter(role=Role.ADMIN).count() == 1


def test_memberships_are_found_across_tenants_and_only_ones_own(admin):
    with tenant_scope(TenantFactory(slug="zoo", name="Ångström")):
        MembershipFactory(user=admin.user, role=Role.VIEWER)
        MembershipFactory()
    found = access.memberships_of(admin.user)
    assert [membership.tenant.slug for membership in found] == ["acme", "zoo"]
    assert access.membership_in("acme", UserFactory()) is None
    assert access.membership_in("nowhere", admin.user) is None


def test_a_signin_link_works_once_and_for_a_day(admin, settings, monkeypatch):
    user = admin.user
    token = access.signin_link.make_token(user)
    assert access.signin_link.check_token(user, token)
    assert not access.signin_link.check_token(UserFactory(), token)
    now = access.signin_link._now()
    monkeypatch.setattr(access.signin_link, "_now", lambda: now + dt.timedelta(hours=25))
    assert not access.signin_link.check_token(user, token)
    monkeypatch.undo()
    user.last_login = timezone.now()
    assert not access.signin_link.check_token(user, token)
    for wrong in ("", "x", "zz-zz", "-", token + "x"):
        assert not access.signin_link.check_token(user, wrong)


def test_the_operators_commands_make_a_tenant_and_let_its_admin_in(db, capsys, client):
    call_command("create_tenant", "harbour", "--name", "Harbour", "--admin", "Boss@example.com")
    with pytest.raises(CommandError, match="already"):
        call_command("create_tenant", "harbour", "--admin", "boss@example.com")
    with pytest.raises(CommandError, match="Lower-case"):
        call_command("create_tenant", "Not A Slug", "--admin", "boss@example.com")
    capsys.readouterr()
    call_command("signin_link", "--email", "boss@example.com")
    path = capsys.readouterr().out.strip()
    assert path.startswith("/signin/once/")
    with pytest.raises(CommandError, match="no active user"):
        call_command("signin_link", "--email", "nobody@example.com")
    membership = access.membership_in("harbour", User.objects.get(email="boss@example.com"))
    assert membership.role == Role.ADMIN
    assert access.tenant_by_slug("harbour").name == "Harbour"
    assert access.tenant_by_slug("nowhere") is None
    assert isinstance(membership.tenant, Tenant)
