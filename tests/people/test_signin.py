"""Signing in and out, by password and by link."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client

from tenants import access
from tenants.models import AuditEvent, Membership, Role, User
from tenants.scope import tenant_scope
from tests.factories import MembershipFactory, TenantFactory, UserFactory

PASSWORD = "correct horse battery"


@pytest.fixture
def member(db) -> Membership:
    with tenant_scope(TenantFactory(slug="acme")):
        return MembershipFactory(user=UserFactory(email="ada@example.com", password=PASSWORD), role=Role.OPERATOR)


def sign_in(client, **given):
    return client.post("/signin/", {"username": "ada@example.com", "password": PASSWORD} | given)


def test_a_member_signs_in_and_lands_in_the_only_tenant(client, member):
    response = client.get("/t/acme/members/")
    assert response.status_code == 302
    assert response.url == "/signin/?next=/t/acme/members/"
    assert sign_in(client).url == "/"
    assert client.get("/").url == "/t/acme/"
    with tenant_scope(member.tenant_id):
        event = AuditEvent.objects.get()
        assert (event.action, event.actor_id, event.detail) == ("member.signed_in", member.user_id, {"how": "password"})
        assert event.request_id != "-"


def test_the_password_is_stored_with_argon2(member):
    assert member.user.password.startswith("argon2")


def test_capitals_and_blanks_around_the_address_do_not_matter(client, member):
    assert sign_in(client, username=" Ada@Example.COM ").status_code == 302


@pytest.mark.parametrize(
    "given",
    [{"password": "wrong"}, {"username": "eve@example.com"}, {"username": "a\x00da@example.com"}, {"password": ""}],
)
def test_a_wrong_pair_is_told_back_without_saying_which_is_wrong(client, member, given):
    response = sign_in(client, **given)
    assert response.status_code == 200
    assert "_auth_user_id" not in client.session
    assert 'class="errorlist' in response.text


def test_the_same_words_for_a_wrong_password_and_an_unknown_address(client, member):
    wrong, unknown = sign_in(client, password="wrong"), sign_in(client, username="eve@example.com")
    assert "do not go together" in wrong.text
    assert "do not go together" in unknown.text


def test_a_next_address_elsewhere_is_not_followed(client, member):
    response = client.post("/signin/?next=https://evil.example/", {"username": "ada@example.com", "password": PASSWORD})
    assert response.url == "/"


def test_signing_out_ends_the_session_and_needs_a_post(client, member):
    sign_in(client)
    assert client.get("/signout/").status_code == 405
    assert client.post("/signout/").url == "/signin/"
    assert client.get("/t/acme/members/").status_code == 302


def test_a_link_signs_in_once_and_not_by_looking_at_it(client, member, capsys):
    call_command("signin_link", "--email", "ada@example.com")
    path = capsys.readouterr().out.strip()
    assert client.get(path).status_code == 200
    assert "_auth_user_id" not in client.session
    assert client.post(path).url == "/"
    assert client.get("/t/acme/members/").status_code == 200
    client.post("/signout/")
    used = client.post(path)
    assert used.status_code == 410
    assert "no longer works" in used.text
    assert client.get("/signin/once/!!/x/").status_code == 410
    assert client.get("/signin/once/OTk5OTk/x-y/").status_code == 410


def test_a_link_pressed_eight_times_at_once_signs_in_once(member, capsys):
    call_command("signin_link", "--email", "ada@example.com")
    path = capsys.readouterr().out.strip()
    gate = threading.Barrier(8)

    def press(_: int) -> int:
        gate.wait()
        try:
            return Client().post(path).status_code
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as threads:
        answers = sorted(threads.map(press, range(8)))
    assert answers == [302] + [410] * 7


def test_a_session_is_renewed_while_it_is_used(client, member):
    sign_in(client)
    client.get("/t/acme/members/")
    first = client.session["renewed_at"]
    client.get("/t/acme/members/")
    assert client.session["renewed_at"] == first
    session = client.session
    session["renewed_at"] = first - 3601
    session.save()
    assert "qlab_session" in client.get("/t/acme/members/").cookies
    assert client.session["renewed_at"] >= first


def test_a_session_ends_after_a_week_however_busy(client, member, settings):
    sign_in(client)
    session = client.session
    assert access.session_user(session.session_key) == member.user
    session["signed_in_at"] -= settings.SESSION_MAX_AGE_S + 1
    session.save()
    assert access.session_user(session.session_key) is None
    assert client.get("/t/acme/members/").url.startswith("/signin/")
    assert not client.session.exists(session.session_key)


def test_the_cookie_is_out_of_reach_and_another_one_after_the_sign_in(client, member):
    client.cookies["qlab_session"] = "a" * 32  # what somebody else put there
    cookie = sign_in(client).cookies["qlab_session"]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"], cookie["domain"]) == (True, "Lax", "/", "")
    assert cookie.value != "a" * 32


def test_sessions_outlive_a_new_secret_key(client, member, settings):
    sign_in(client)
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another one of fifty characters " * 2, [settings.SECRET_KEY]
    assert client.get("/t/acme/members/").status_code == 200


@pytest.mark.parametrize(
    "zone", ["posixrules", "localtime", "../../etc/passwd", "Mars/Base", "\x00", "UTC", "Europe/Rome"]
)
def test_a_strange_zone_is_taken_for_utc(client, member, zone):
    sign_in(client)
    client.cookies["tz"] = zone
    response = client.get("/t/acme/")
    assert response.status_code == 200
    assert (zone if zone == "Europe/Rome" else "UTC") in response.text


def test_somebody_switched_off_cannot_come_in(client, member, capsys):
    call_command("signin_link", "--email", "ada@example.com")
    path = capsys.readouterr().out.strip()
    User.objects.filter(pk=member.user_id).update(is_active=False)
    assert client.post(path).status_code == 410
    assert sign_in(client).status_code == 200


def test_the_switcher_lists_ones_own_tenants(client, member):
    with tenant_scope(TenantFactory(slug="zoo", name="The Zoo")):
        MembershipFactory(user=member.user, role=Role.VIEWER)
    TenantFactory(slug="other", name="Somebody Else")
    client.force_login(member.user)
    page = client.get("/").text
    assert "The Zoo" in page
    assert "Somebody Else" not in page
    assert 'href="/t/zoo/"' in page


def test_a_person_in_no_tenant_reads_what_to_do(client, db):
    client.force_login(UserFactory())
    assert "invitation link" in client.get("/").text


def test_the_account_page_saves_a_name_and_a_password(client, member):
    sign_in(client)
    assert client.post("/account/", {"what": "name", "name": "Ada Ørsted"}).status_code == 302
    wrong = client.post(
        "/account/", {"what": "password", "old_password": "x", "new_password1": "n", "new_password2": "m"}
    )
    assert "not the present password" in wrong.text
    new = {"old_password": PASSWORD, "new_password1": "a brand new secret", "new_password2": "a brand new secret"}
    assert client.post("/account/", {"what": "password"} | new).status_code == 302
    assert client.get("/account/").status_code == 200  # this session goes on
    member.user.refresh_from_db()
    assert member.user.name == "Ada Ørsted"
    assert member.user.check_password("a brand new secret")


def test_a_new_password_ends_other_sessions(client, member, django_user_model):
    sign_in(client)
    member.user.set_password("changed elsewhere, long enough")
    member.user.save()
    assert client.get("/t/acme/members/").status_code == 302
