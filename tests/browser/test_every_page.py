"""Every page that the URL configuration knows, as a browser shows it: legible, named, and no wider than the window, in
both themes and in each language. A page is loaded once and asked all of it: loading is what takes the time."""

from collections.abc import Iterator

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page

from tenants.models import Membership
from tests.browser.look import ASTRAY, BROKEN, LONGER
from tests.pages.routes import pages
from tests.pages.world import ARABIC, make_world

pytestmark = pytest.mark.browser

WIDTHS = (1440, 1024, 390, 360)
HEIGHT = 900
PARTS = 2  # workers share the pages: each takes every second one

# Pages again, in states that their bare addresses do not show.
STATES = (
    "calls/?error=perhaps", "calls/?tool=none", "review/?done=1", "review/?call={call}&correct=bad_args",
    "review/?call={call}&correct=missing_tool", "guidelines/?edit", "agreement/?tool=nobody", "export/?kind=feedback",
    "replays/trends/?case=REG-1234", "nothing/",
)  # fmt: skip

# What axe finds that keeps people from something. `rules` narrows it to what another theme can change.
FOUND = """
async (rules) => {
  const some = rules ? { runOnly: rules } : {};
  const { violations } = await axe.run(document, { resultTypes: ["violations"], ...some });
  return violations
    .filter((one) => ["serious", "critical"].includes(one.impact) || one.id === "heading-order")
    .map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`);
}
"""
OPEN = "for (const fold of document.querySelectorAll('main details:not(.act, .confirm)')) fold.open = true"
OVER = "document.documentElement.scrollWidth - innerWidth"


@pytest.fixture
def world(db: None) -> Membership:
    return make_world(word=f"{ARABIC} ")


def paths(member: Membership, part: int) -> Iterator[str]:
    found = pages("acme", member.tenant_id)
    call = found["call-detail"].rstrip("/").rpartition("/")[2]
    every = [*found.values(), *(f"/t/acme/{state.format(call=call)}" for state in STATES)]
    yield from every[part::PARTS]


def too_wide(page: Page) -> Iterator[str]:
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": HEIGHT})
        if (over := page.evaluate(OVER)) > 0:
            yield f"{over} px wider than {width}"
        yield from (f"at {width}: {fault}" for fault in page.evaluate(BROKEN))


@pytest.mark.parametrize("part", range(PARTS))
def test_every_page_is_legible_named_and_in_the_windows_width(desk, world, part):
    ada = desk(world)
    faults: dict[str, list[str]] = {}
    for path in paths(world, part):
        ada.expected = {404} if path.endswith("nothing/") else set()
        page = ada.open(path)
        page.evaluate(OPEN)
        page.evaluate(AXE_SCRIPT)
        page.emulate_media(color_scheme="light")
        page.set_viewport_size({"width": WIDTHS[0], "height": HEIGHT})
        found = page.evaluate(FOUND)
        page.emulate_media(color_scheme="dark")
        found += [f"dark {fault}" for fault in page.evaluate(FOUND, ["color-contrast"])]
        found += [f"not set apart: {text}" for text in page.evaluate(ASTRAY)]
        page.evaluate(LONGER)
        found += too_wide(page)
        if found:
            faults[path] = found
        ada.check()
    assert faults == {}


@pytest.mark.parametrize("language", ["it", "es", "ru"])
def test_no_page_is_wider_than_the_window_in_any_language(desk, world, language):
    ada = desk(world)
    ada.context.add_cookies([{"name": "language", "value": language, "url": ada.url}])
    faults: dict[str, list[str]] = {}
    for path in pages("acme", world.tenant_id).values():
        page = ada.open(path)
        page.evaluate(OPEN)
        assert page.locator("html").get_attribute("lang") == language, path
        if found := list(too_wide(page)):
            faults[path] = found
    assert faults == {}
    ada.check()
