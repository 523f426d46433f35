"""How often one may try to sign in (B11)."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth.signals import user_login_failed
from django.db import connection
from django.test import Client

from tenants import throttle
from tests.factories import UserFactory

PASSWORD = "correct horse battery"


@pytest.fixture
def checked(db: None) -> Any:
    """What reached the check of a password and failed there."""
    seen: list[str] = []

    def note(credentials: dict[str, Any], **_: object) -> None:
        seen.append(credentials["username"])

    user_login_failed.connect(note)
    UserFactory(email="ada@example.com", password=PASSWORD)
    yield seen
    user_login_failed.disconnect(note)


def attempt(password: str = "wrong", email: str = "ada@example.com", **headers: str) -> Any:
    return Client().post("/signin/", {"username": email, "password": password}, headers=headers)


def test_of_many_tries_at_once_a_few_reach_the_password(checked: list[str]) -> None:
    gate = threading.Barrier(20)

    def press(number: int) -> int:
        gate.wait()
        try:
            return attempt(**{"X-Forwarded-For": f"203.0.113.{number}"}).status_code  # helps nobody
        finally:
            connection.close()

    with ThreadPoolExecutor(20) as threads:
        answers = sorted(threads.map(press, range(20)))
    assert len(checked) == throttle.PER_ACCOUNT
    assert answers == [200] * throttle.PER_ACCOUNT + [429] * (20 - throttle.PER_ACCOUNT)


def test_a_shut_account_says_for_how_long_and_takes_no_password(checked: list[str]) -> None:
    for email in ("ada@example.com", " Ada@Example.COM") * 3:  # one account in any spelling
        attempt(email=email)
    refused = attempt(PASSWORD)
    assert refused.status_code == 429
    assert refused["Retry-After"] == "900"
    assert "15 minutes" in refused.text
    assert attempt(email="bob@example.com").status_code == 200  # others are not shut out
    with connection.cursor() as cursor:
        cursor.execute("UPDATE signin_attempts SET began_at = began_at - interval '901 s'")
    assert attempt(PASSWORD).status_code == 302
    throttle.forget_old()


def test_a_sign_in_forgets_the_tries_before_it(checked: list[str]) -> None:
    for _ in range(3):
        for _ in range(throttle.PER_ACCOUNT - 1):
            attempt()
        assert attempt(PASSWORD).status_code == 302


def test_a_network_is_counted_over_all_accounts(db: None) -> None:
    assert all(throttle.may_try(f"{number}@example.com", f"198.51.100.{number}") for number in range(100))
    assert not throttle.may_try("x@example.com", "198.51.100.200")
    assert throttle.may_try("x@example.com", "198.51.101.1")


@pytest.mark.parametrize(
    ("address", "network"),
    [("198.51.100.7", "198.51.100.0/24"), ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"), ("", ""), ("unix:", "unix:")],
)
def test_a_network_is_what_one_subscriber_has(address: str, network: str) -> None:
    assert throttle.network(address) == network


def test_nobodys_address_is_kept(checked: list[str]) -> None:
    attempt()
    with connection.cursor() as cursor:
        cursor.execute("SELECT t::text FROM signin_attempts t")
        assert "example" not in str(cursor.fetchall())
