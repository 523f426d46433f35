"""Members, invitations and tokens as pages."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection
from django.test import Client

from tenants.access import membership_in
from tenants.models import ApiToken, AuditEvent, Invitation, Membership, Role, User
from tenants.scope import tenant_scope
from tenants.tokens import find_token
from tests.factories import MembershipFactory, TenantFactory, UserFactory


@pytest.fixture
def admin(client, db) -> Membership:
    with tenant_scope(TenantFactory(slug="acme", name="Acme")):
        membership = MembershipFactory(user=UserFactory(email="boss@example.com", name="Boss"), role=Role.ADMIN)
    client.force_login(membership.user)
    return membership


def colleague(admin: Membership, role: str = Role.OPERATOR) -> Membership:
    with tenant_scope(admin.tenant_id):
        return MembershipFactory(role=role)


def plain(response) -> str:
    """The page without what is drawn anew for each answer."""
    return re.sub(r'(nonce="|csrfmiddlewaretoken" value="|"X-CSRFToken": ")[^"]+', r"\1", response.text)


PATHS = ("/t/acme/members/", "/t/acme/tokens/")
WRITES = (
    "/t/acme/members/invite/", "/t/acme/members/1/role/", "/t/acme/members/1/remove/", "/t/acme/invitations/1/revoke/",
    "/t/acme/tokens/create/", "/t/acme/tokens/1/revoke/",
)  # fmt: skip


@pytest.mark.parametrize("path", [*PATHS, *WRITES])
def test_outsiders_get_404(client, admin, path):
    with tenant_scope(TenantFactory(slug="other")):
        client.force_login(MembershipFactory(role=Role.ADMIN).user)
    send = client.get if path in PATHS else client.post
    response, missing = send(path), send(path.replace("acme", "nowhere"))
    assert (response.status_code, missing.status_code) == (404, 404)
    assert plain(response) == plain(missing).replace("nowhere", "acme")


@pytest.mark.parametrize("path", [*WRITES, "/t/acme/tokens/"])
@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
def test_lesser_roles_get_403_and_are_told_which_role_is_needed(client, admin, path, role):
    client.force_login(colleague(admin, role).user)
    response = client.get(path) if path in PATHS else client.post(path)
    assert response.status_code == 403
    assert "Admin" in response.text


@pytest.mark.parametrize("path", WRITES)
def test_nothing_changes_on_get(client, admin, path):
    assert client.get(path).status_code == 405


def test_the_list_costs_the_same_for_one_member_and_for_twenty(client, admin, django_assert_num_queries):
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as one:
        client.get("/t/acme/members/")
    for _ in range(20):
        colleague(admin)
    with django_assert_num_queries(len(one)):
        client.get("/t/acme/members/")


def test_an_invitation_makes_an_account_and_a_membership(client, admin):
    page = client.post("/t/acme/members/invite/", {"role": "operator", "email": "new@example.com"})
    path = re.search(r"http://testserver(/invitations/[\w-]+/)", page.text)[1]
    assert path not in client.get("/t/acme/members/").text  # shown once
    client.post("/signout/")
    form = {"email": "new@example.com", "name": "Neu", "password": "long enough to do"}
    assert "Acme" in client.get(path).text
    assert "at least 10" in client.post(path, form | {"password": "short"}).text
    assert "is for new@example.com" in client.post(path, form | {"email": "else@example.com"}).text
    assert client.post(path, form).url == "/t/acme/"
    assert client.get("/t/acme/members/").status_code == 200
    assert membership_in("acme", User.objects.get(email="new@example.com")).role == Role.OPERATOR
    assert client.get(path).status_code == 410


def test_an_invitation_lets_a_signed_in_person_join_but_not_another_one(client, admin):
    def link(email: str) -> str:
        page = client.post("/t/acme/members/invite/", {"role": "viewer", "email": email})
        return re.search(r"http://testserver(/invitations/[\w-]+/)", page.text)[1]

    theirs, anyones = link("them@example.com"), link("")
    stranger = UserFactory(email="stranger@example.com")
    client.force_login(stranger)
    assert client.get(theirs).status_code == 403
    assert client.post(theirs).status_code == 403
    assert client.post(anyones).url == "/t/acme/"
    assert membership_in("acme", stranger).role == Role.VIEWER


def test_an_account_cannot_be_taken_over_by_joining(client, admin):
    page = client.post("/t/acme/members/invite/", {"role": "viewer", "email": ""})
    path = re.search(r"http://testserver(/invitations/[\w-]+/)", page.text)[1]
    client.post("/signout/")
    response = client.post(path, {"email": "BOSS@example.com", "password": "long enough to do"})
    assert "There is an account with this address" in response.text


def test_two_newcomers_with_one_link_leave_one_account_and_one_membership(client, admin):
    page = client.post("/t/acme/members/invite/", {"role": "viewer", "email": ""})
    path = re.search(r"http://testserver(/invitations/[\w-]+/)", page.text)[1]
    gate = threading.Barrier(2)

    def join(number: int) -> int:
        gate.wait()
        try:
            form = {"email": f"newcomer{number}@example.com", "password": "long enough to do"}
            return Client().post(path, form).status_code
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(join, range(2))) == [302, 410]
    assert User.objects.filter(email__startswith="newcomer").count() == 1


def test_a_withdrawn_invitation_is_over(client, admin):
    page = client.post("/t/acme/members/invite/", {"role": "viewer", "email": ""})
    path = re.search(r"http://testserver(/invitations/[\w-]+/)", page.text)[1]
    with tenant_scope(admin.tenant_id):
        pk = Invitation.objects.get().pk
    client.post(f"/t/acme/invitations/{pk}/revoke/")
    assert client.get(path).status_code == 410


def test_a_role_change_acts_on_the_next_request(client, admin):
    other = colleague(admin, Role.ADMIN)
    client.post(f"/t/acme/members/{admin.pk}/role/", {"role": "viewer"})
    assert client.get("/t/acme/tokens/").status_code == 403
    with tenant_scope(admin.tenant_id):
        event = AuditEvent.objects.get(action="member.role_changed")
        assert event.detail["to"] == "viewer"
        assert event.before_sha256 != event.after_sha256
    client.force_login(other.user)
    page = client.post(f"/t/acme/members/{other.pk}/role/", {"role": "viewer"}, follow=True)
    assert "needs an admin" in page.text
    page = client.post(f"/t/acme/members/{other.pk}/role/", {"role": "king"}, follow=True)
    assert "none of viewer, operator, admin" in page.text
    page = client.post(f"/t/acme/members/{other.pk}/remove/", follow=True)
    assert "needs an admin" in page.text


def test_a_removed_member_is_out_at_once(client, admin):
    other = colleague(admin)
    page = client.post(f"/t/acme/members/{other.pk}/remove/", follow=True)
    assert "no longer a member" in page.text
    client.force_login(other.user)
    assert client.get("/t/acme/members/").status_code == 404


def test_another_tenants_rows_cannot_be_reached_through_ones_own_address(client, admin):
    with tenant_scope(TenantFactory(slug="other")):
        theirs = MembershipFactory(role=Role.ADMIN)
    assert client.post(f"/t/acme/members/{theirs.pk}/role/", {"role": "viewer"}).status_code == 404
    assert client.post(f"/t/acme/members/{theirs.pk}/remove/").status_code == 404
    with tenant_scope(theirs.tenant_id):
        assert Membership.objects.get().role == Role.ADMIN


def test_a_token_is_shown_once_and_works_until_it_is_revoked(client, admin):
    page = client.post("/t/acme/tokens/create/", {"name": "CI", "scopes": ["read"], "life": "30"})
    text = re.search(r"qlab_[a-z0-9]{12}_[\w-]{51}", page.text)[0]
    assert text not in client.get("/t/acme/tokens/").text
    token = find_token(text)
    assert token.scopes == ["read"]
    assert client.post(f"/t/acme/tokens/{token.pk}/revoke/").status_code == 302
    assert find_token(text) is None
    assert "revoked" in client.get("/t/acme/tokens/").text
    with tenant_scope(admin.tenant_id):
        assert list(AuditEvent.objects.order_by("id").values_list("action", flat=True)) == [
            "token.created", "token.revoked",
        ]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), [("name", ""), ("scopes", []), ("scopes", ["everything"]), ("life", "12")])
def test_a_wrong_token_form_is_told_back_and_makes_none(client, admin, field, value):
    page = client.post("/t/acme/tokens/create/", {"name": "CI", "scopes": ["read"], "life": "30"} | {field: value})
    assert "errorlist" in page.text
    with tenant_scope(admin.tenant_id):
        assert not ApiToken.objects.exists()
