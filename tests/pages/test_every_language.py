"""All pages in all languages: they are there, machines read the same in each, and people read what was translated."""

import gettext
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import django
import psycopg
import pytest
from django.conf import settings
from django.test import Client
from django.utils import translation
from django.utils.translation import trans_real

from quality.ingest import formats
from tenants.models import Membership
from tests import environment
from tests.house.test_languages import messages
from tests.house.untranslated import SAID, SAME, VOID, is_words
from tests.pages.routes import pages
from tests.pages.world import make_world

MAX_PAGES = 400
PER_ROUTE = 2  # pages of one kind with other numbers and conditions say nearly the same
OF_REQUEST = {"lang", "hx-headers", "nonce"}  # the language itself, and tokens of the moment
FIRST_ID = 1_234_567
OPEN, CLOSE = "⟦", "⟧"
# What a person wrote or a machine sent is marked as such, and is in no catalogue.
EVIDENCE = SAME | {"bdi", "time", "textarea", "datalist", "title"}
BLOCKS = {"p", "div", "li", "td", "th", "h1", "h2", "h3", "section", "tr", "label", "button", "option", "summary"}
# The tenant's own words where no element can mark them: names in choices and fields, codes, addresses.
OF_WORLD = re.compile(
    r"https?://\S+|\b(?:Ada Admin|Olga|[a-z]+@example\.com|Plain|Nightly|Acme|expert|tiny|plain|orders|engine|api"
    r"|EUR|USD|UTC|CET|CEST|Europe/Rome|REG-\d+|[a-z]+_[a-z_]+|city|string|unit|celsius|fahrenheit|number|integer|answered"
    r"|true|false|null|[0-9a-f]{8}|\d\d \w{3} \d\d:\d\d|POST|GET|PUT|PATCH|DELETE|MON-FRI|tool=\S+)\b"
)
# Names of formats are names.
FORMATS = {one.LABEL for one in formats.FORMATS.values()}
GROUPED = re.compile(r"(?<!\d)\d{1,3}(?:,\d{3})+(?!\d)")
RANDOM = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}|console-[0-9a-f]{12}")


@pytest.fixture
def high_ids(db) -> Iterator[None]:
    """Ids with seven digits, so that one that is written as for people is seen."""
    with psycopg.connect(psycopg.conninfo.make_conninfo(environment.ADMIN_URL, dbname=environment.DATABASE)) as admin:
        sequences = admin.execute("SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = 'public'")
        known = sequences.fetchall()
        for name, _ in known:
            admin.execute("SELECT setval(%s::regclass, %s)", [name, FIRST_ID])
        admin.commit()
        yield
        for name, last in known:
            admin.execute("SELECT setval(%s::regclass, %s, %s)", [name, last or 1, last is not None])


def outside(text: str, depth: int = 0) -> tuple[str, int]:
    """What stands outside of brackets, one blank for each stretch of them; and how deep it ends, since a message may
    hold elements and so stand in several texts."""
    left = []
    for character in text:
        depth = max(0, depth + (character == OPEN) - (character == CLOSE))
        if not depth and character != CLOSE:
            left.append(character)
    return " ".join("".join(left).split()), depth


def is_for_scripts(name: str, value: str) -> bool:
    """Words that a script will say, in the page's language."""
    is_said = " " in value or value[:1].isupper() or not value.isascii() or "words" in name
    return name.startswith("data-") and is_words(value) and is_said


class Reader(HTMLParser):
    """What a page says to people (outside of evidence), what it tells machines, and where its links lead."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []
        self.told: list[tuple[str, str, str]] = []
        self.links: list[str] = []
        self.open: list[tuple[str, bool]] = []
        self.depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag in BLOCKS:
            self.depth = 0  # what was cut off there ends there
        is_evidence = bool(self.open and self.open[-1][1]) or tag in EVIDENCE
        is_evidence |= (
            given.get("dir") == "auto" or given.get("translate") == "no" or ("lang" in given and tag != "html")
        )
        for name, value in given.items():
            if name in SAID:
                self.said += [] if is_evidence else [outside(value)[0]]
            elif value and name not in OF_REQUEST and "csrf" not in str(given) and not is_for_scripts(name, value):
                self.told.append((tag, name, RANDOM.sub("random", value)))
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag not in VOID:
            self.open.append((tag, is_evidence))

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        is_evidence = bool(self.open and self.open[-1][1])
        left, self.depth = outside(data, self.depth)
        if left and not is_evidence:
            self.said.append(left)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    return reader


def kind_of(path: str) -> str:
    return re.sub(r"\d+", "0", urlsplit(path).path)


def crawl(client: Client, language: str) -> dict[str, Reader]:
    """Every page that links lead to, a few of each kind."""
    client.cookies["language"] = language
    waiting, seen, found = ["/t/acme/", "/account/", "/?switch"], set(), {}
    kinds: dict[str, int] = {}
    while waiting and len(found) < MAX_PAGES:
        path = waiting.pop(0)
        response = client.get(path)
        assert response.status_code < 500, path
        if response.status_code != 200 or not response.headers["Content-Type"].startswith("text/html"):
            continue
        assert response.headers["Content-Language"] == language, path
        found[path] = read(response.text)
        for link in found[path].links:
            target = urljoin(path, link).partition("#")[0]
            kind = kind_of(target)
            if target.startswith("/t/acme/") and target not in seen and kinds.get(kind, 0) < PER_ROUTE:
                kinds[kind] = kinds.get(kind, 0) + 1
                seen.add(target)
                waiting.append(target)
    assert len(found) > 40
    return found


@pytest.fixture
def world(high_ids: None) -> Membership:
    return make_world()


@pytest.fixture
def admin(world: Membership) -> Client:
    client = Client()
    client.force_login(world.user)
    return client


@pytest.mark.slow
def test_machines_read_the_same_on_every_page_in_every_language(admin, world):
    """Ids, addresses, values of fields, coordinates of charts: none of them is written as for people."""
    for path in pages("acme", world.tenant_id).values():  # right after each other: some tell of what was seen
        told = {}
        for language in ("en", "it", "ru"):  # Spanish writes numbers as Italian does
            admin.cookies["language"] = language
            told[language] = read(admin.get(path).text).told
        assert [one for one in told["en"] if re.search(r"(?<!\d)\d{1,3},\d{3}(?!\d)", one[2])] == [], path
        for language, one in told.items():
            assert sorted(set(one) ^ set(told["en"])) == [], (language, path)


@pytest.fixture
def marked(tmp_path: Path) -> Iterator[str]:
    """A language that says everything in brackets."""
    made = messages.catalogue("it", messages.extract(), None)
    for message in made:
        if message.id:
            forms = message.id if isinstance(message.id, tuple | list) else (message.id,)
            said = tuple(f"{OPEN}{one}{CLOSE}" for one in forms)
            message.string = said if len(said) > 1 else said[0]
    folder = tmp_path / "it" / "LC_MESSAGES"
    folder.mkdir(parents=True)
    (folder / "django.mo").write_bytes(messages.as_mo("it", made))
    kept, settings.LOCALE_PATHS = settings.LOCALE_PATHS, [tmp_path]
    trans_real._translations.clear()
    yield "it"
    settings.LOCALE_PATHS = kept
    trans_real._translations.clear()
    translation.deactivate()


def djangos_own(language: str) -> list[re.Pattern[str]]:
    """What Django says by itself in a language: labels of its forms, names of days."""
    said = []
    for part in ("conf/locale", "contrib/auth/locale"):
        path = Path(django.__file__).parent / part / language / "LC_MESSAGES/django.mo"
        with path.open("rb") as file:
            said += [text for text in gettext.GNUTranslations(file)._catalog.values() if text and len(text) < 200]
    return [re.compile(re.sub(r"%\\\(\w+\\\)[sd]|%\w", ".+", re.escape(text))) for text in said]


@pytest.mark.slow
def test_people_read_nothing_that_was_not_asked_of_the_catalogue(admin, marked):
    own = djangos_own(marked)
    found: dict[str, str] = {}
    for path, page in crawl(admin, marked).items():
        for said in page.said:
            left = OF_WORLD.sub("", said)
            if is_words(left) and left not in FORMATS and not any(one.fullmatch(said) for one in own):
                found.setdefault(left, path)
    assert found == {}
