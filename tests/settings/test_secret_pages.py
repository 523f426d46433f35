"""The Secrets page: what it shows, what it never shows, and to whom."""

import pytest

from tenants import secrets
from tenants.keys import Keyring
from tenants.models import Secret

PAGE = "/t/acme/secrets/"
CANARY = "canary-4711-öäü"


def test_a_secret_is_set_shown_by_date_and_fingerprint_and_never_echoed(browse, inside):
    client = browse()
    response = client.post(f"{PAGE}set/", {"name": "SHOP_KEY", "value": CANARY}, follow=True)
    with inside():
        secret = Secret.objects.get()
    assert "SHOP_KEY is set." in response.text
    assert secret.fingerprint in response.text
    assert f"set on {secret.set_at:%Y-%m-%d}" in response.text
    assert CANARY not in response.text


def test_a_refused_form_does_not_echo_the_value_either(browse, inside):
    response = browse().post(f"{PAGE}set/", {"name": "my key", "value": CANARY})
    assert "letters, digits and _" in response.text
    assert CANARY not in response.text
    with inside():
        assert not Secret.objects.exists()


def test_a_new_value_replaces_the_old_one(browse, inside):
    client = browse()
    for value in ("one", "two"):
        client.post(f"{PAGE}set/", {"name": "K", "value": value})
    with inside():
        assert secrets.read(Secret.objects.get(), used_by="t", run="r") == "two"


def test_blanks_belong_to_a_value(browse, inside):
    browse().post(f"{PAGE}set/", {"name": "K", "value": " v "})
    with inside():
        assert secrets.read(Secret.objects.get(), used_by="t", run="r") == " v "


def test_a_secret_is_deleted(browse, inside):
    client = browse()
    client.post(f"{PAGE}set/", {"name": "K", "value": "v"})
    with inside():
        pk = Secret.objects.get().pk
    assert "K is deleted" in client.post(f"{PAGE}{pk}/delete/", follow=True).text
    with inside():
        assert not Secret.objects.exists()


def test_without_keys_the_page_says_whom_to_ask(browse, settings):
    settings.APP_KEKS = Keyring()
    assert "the operator has set no APP_KEKS" in browse().post(f"{PAGE}set/", {"name": "K", "value": "v"}).text


def test_the_name_is_filled_in_for_those_who_come_from_a_tool(browse):
    assert 'value="SHOP_KEY"' in browse().get(f"{PAGE}?name=SHOP_KEY").text


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_lesser_roles_get_403(browse, role):
    client = browse(role)
    assert client.get(PAGE).status_code == 403
    assert client.post(f"{PAGE}set/", {"name": "K", "value": "v"}).status_code == 403
    assert client.post(f"{PAGE}1/delete/").status_code == 403


def test_outsiders_get_404_and_another_tenants_secret_is_none(browse, outsider, inside):
    client = browse()
    client.post(f"{PAGE}set/", {"name": "K", "value": "v"})
    with inside():
        pk = Secret.objects.get().pk
    assert outsider.get(PAGE).status_code == 404
    assert outsider.post(f"{PAGE}{pk}/delete/").status_code == 404
    assert outsider.post(f"/t/globex/secrets/{pk}/delete/").status_code == 404
    assert "<code>K</code>" in client.get(PAGE).text


def test_the_list_costs_the_same_for_one_secret_and_for_twenty(browse, django_assert_num_queries, inside):
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    client = browse()
    client.post(f"{PAGE}set/", {"name": "K", "value": "v"})
    client.get(PAGE)
    with CaptureQueriesContext(connection) as one:
        client.get(PAGE)
    with inside():
        for number in range(20):
            secrets.set_secret(name=f"K{number}", value="v", actor=client.member.user,
                               places=[secrets.Place(f"t{number}", "https://a.example:443")])  # fmt: skip
    with django_assert_num_queries(len(one)):
        client.get(PAGE)
