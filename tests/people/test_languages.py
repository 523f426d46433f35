"""Which language a page is in: the account's, the cookie's, the browser's; and figures and days as it writes them."""

import datetime as dt

import pytest
from django.test import Client
from django.utils import timezone, translation

from quality import languages
from tenants.models import User
from tests.factories import UserFactory

PASSWORD = "correct horse battery"


def language_of(response) -> str:
    assert response.status_code == 200
    language = response.headers["Content-Language"]
    assert f'<html lang="{language}"' in response.text
    return language


@pytest.fixture
def user(db) -> User:
    return UserFactory(email="ada@example.com", password=PASSWORD)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", "en"),
        ("it", "it"),
        ("it-IT,it;q=0.9,en;q=0.8", "it"),
        ("es-419, en;q=0.5", "es"),
        ("ru;q=0.4, it;q=0.9", "it"),
        ("fr, de;q=0.9, ru;q=0.1", "ru"),
        ("fr, ja", "en"),
        ("*", "en"),
        ("it;q=0, es;q=0.1", "es"),
        ("en-GB, it", "en"),
        ("x" * 20_000, "en"),
        ("\x00\xff;;q=,,", "en"),
    ],
)
def test_without_a_choice_the_browser_is_asked(client, db, header, expected):
    response = client.get("/signin/", headers={"Accept-Language": header} if header else {})
    assert language_of(response) == expected
    assert {"Accept-Language", "Cookie"} <= {name.strip() for name in response.headers["Vary"].split(",")}
    assert "no-store" in response.headers["Cache-Control"]


def test_a_choice_is_kept_in_a_cookie_before_anybody_signed_in(client, db):
    response = client.post("/language/", {"language": "ru", "next": "/signin/"})
    assert response.url == "/signin/"
    assert language_of(client.get("/signin/", headers={"Accept-Language": "it"})) == "ru"
    client.post("/language/", {"language": "", "next": "/signin/"})
    assert language_of(client.get("/signin/", headers={"Accept-Language": "it"})) == "it"


@pytest.mark.parametrize("language", ["de", "xx", "../../etc/passwd", "it\x00x", "IT"])
def test_a_language_that_is_not_there_is_not_taken(client, user, language):
    client.force_login(user)
    client.post("/language/", {"language": language})
    user.refresh_from_db()
    assert user.language == ""
    assert "language" not in client.cookies or not client.cookies["language"].value
    client.cookies["language"] = language.replace("\x00", "")
    assert language_of(client.get("/account/")) == "en"


def test_the_choice_goes_nowhere_else_and_needs_a_post(client, db):
    assert client.post("/language/", {"language": "it", "next": "https://evil.example/"}).url == "/"
    assert client.get("/language/").status_code == 405
    assert Client(enforce_csrf_checks=True).post("/language/", {"language": "it"}).status_code == 403


def test_the_account_goes_before_cookie_and_browser(client, user):
    client.force_login(user)
    client.post("/language/", {"language": "es", "next": "/account/"})
    user.refresh_from_db()
    assert user.language == "es"
    client.cookies["language"] = "ru"
    page = client.get("/account/", headers={"Accept-Language": "it"})
    assert language_of(page) == "es"
    assert '<option value="es" lang="es" selected>' in " ".join(page.text.split())


def test_an_account_without_a_choice_takes_the_cookie_then_the_browser(client, user):
    client.force_login(user)
    assert language_of(client.get("/account/", headers={"Accept-Language": "it"})) == "it"
    client.cookies["language"] = "ru"
    assert language_of(client.get("/account/", headers={"Accept-Language": "it"})) == "ru"


def test_the_choice_follows_the_person_to_another_browser(user):
    first, second = Client(), Client()
    for browser in (first, second):
        browser.force_login(user)
    first.post("/language/", {"language": "it"})
    assert language_of(second.get("/account/")) == "it"


def test_nothing_of_one_request_stays_for_the_next(client, db):
    client.get("/signin/", headers={"Accept-Language": "ru"})
    assert translation.get_language() == "en"
    assert language_of(client.get("/signin/")) == "en"


def test_error_pages_speak_the_language_of_the_page(client, db):
    response = client.get("/nothing/here/", headers={"Accept-Language": "it"})
    assert response.status_code == 404
    assert '<html lang="it"' in response.text


@pytest.mark.parametrize("path", ["/api/admin/tools", "/api/nothing", "/healthz", "/docs"])
def test_programs_are_answered_in_english(client, db, path):
    english = client.get(path)
    response = client.get(path, headers={"Accept-Language": "ru"})
    assert "Content-Language" not in response.headers
    if "json" in response.headers["Content-Type"]:
        without_id = [{k: v for k, v in one.json().items() if k != "requestId"} for one in (english, response)]
        assert without_id[0] == without_id[1]


@pytest.mark.parametrize(
    ("language", "expected"),
    [("en", "1,234,567.5"), ("it", "1.234.567,5"), ("es", "1\xa0234\xa0567,5"), ("ru", "1\xa0234\xa0567,5")],
)
def test_numbers_are_written_as_the_language_writes_them(language, expected):
    with translation.override(language):
        assert languages.number(1_234_567.5, 1) == expected
        assert languages.number(1_234_567) == expected.rpartition(expected[-2])[0]


@pytest.mark.parametrize(
    ("language", "share", "duration", "size", "cost"),
    [
        ("en", "2.5 %", "1.5 s", "1.5 KiB", "1,234.50"),
        ("it", "2,5 %", "1,5 s", "1,5 KiB", "1.234,50"),
        ("ru", "2,5 %", "1,5 ", "1,5 ", "1\xa0234,50"),
    ],
)
def test_filters_write_figures_in_the_language(language, share, duration, size, cost):
    from quality.templatetags import evidence, replays

    with translation.override(language):
        assert evidence.share(1, 40) == share
        assert evidence.duration(1_500).startswith(duration)
        assert evidence.size(1_536).startswith(size)
        assert replays.money(1_234.5) == cost
        assert replays.short(12_345) == ("12.3k" if language == "en" else "12,3k")


@pytest.mark.parametrize(
    ("language", "expected"),
    [("en", "5 Mar 2020 14:07:09"), ("it", "5 mar 2020 14:07:09"), ("ru", "5 мар 2020 14:07:09")],
)
def test_days_are_written_as_the_language_writes_them_and_machines_read_iso(language, expected):
    from quality.templatetags.evidence import moment

    at = dt.datetime(2020, 3, 5, 14, 7, 9, tzinfo=dt.UTC)
    with translation.override(language), timezone.override(dt.UTC):
        shown = moment(at)
    assert f">{expected}</time>" in shown
    assert 'datetime="2020-03-05T14:07:09+00:00"' in shown
