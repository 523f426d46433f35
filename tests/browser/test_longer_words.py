"""Other languages take more room than English, and some begin on the right: no page may break on either."""

import pytest

from quality.models import Replay
from tenants.scope import tenant_scope
from tests.factories import CaseFactory, ImportFactory, ToolCallFactory
from tests.pages.replay_rows import make_replay, make_row, make_sample
from tests.replay.rows import make_schedule

pytestmark = pytest.mark.browser

HEBREW, ARABIC = "שלום עולם", "تذكير الموعد يوم الاثنين الساعة ١٠:٣٠ (غرفة B12) ثم تأكيد الحجز"

# Each word of ours two fifths longer. What people and machines wrote stays: it is as long as it is in any language.
LONGER = """
() => {
  const ours = "bdi, code, pre, time, kbd, svg, script, style, textarea";
  const more = (word) => word + "wxyzaeiou".slice(0, Math.ceil(word.length * 0.4));
  const longer = (text) => text.replace(/[\\p{L}]{2,}/gu, more);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const texts = [];
  while (walker.nextNode()) texts.push(walker.currentNode);
  for (const text of texts) if (!text.parentElement.closest(ours)) text.data = longer(text.data);
  for (const fold of document.querySelectorAll("details:not(.confirm)")) fold.open = true;
}
"""

# Buttons and links like buttons whose words are cut off, and neighbours in a line that lie on one another.
BROKEN = """
() => {
  const found = [];
  const shown = (one) => one.checkVisibility({ visibilityProperty: true }) && !one.closest(".visually-hidden");
  for (const one of document.querySelectorAll("button, .button, h1, h2, label")) {
    if (!shown(one) || !one.clientWidth) continue;
    if (one.scrollWidth > one.clientWidth + 1) found.push(`cut: ${one.textContent.trim().slice(0, 60)}`);
  }
  for (const line of document.querySelectorAll(".page-head, .actions, .buttons, .panel-head, .row, .list-head")) {
    const boxes = [...line.children].filter(shown).filter((one) => getComputedStyle(one).position !== "absolute");
    const areas = boxes.map((one) => one.getBoundingClientRect()).filter((area) => area.width && area.height);
    for (const [place, a] of areas.entries()) {
      for (const b of areas.slice(place + 1)) {
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (wide > 2 && high > 2) found.push(`on one another: ${line.textContent.trim().slice(0, 60)}`);
      }
    }
  }
  return found;
}
"""

# Words of a right-to-left script that are not set apart from the words around them, and fields that hold such words but
# begin on the left.
ASTRAY = """
() => {
  const script = /[\\u0590-\\u08ff]/;
  const apart = "bdi, [dir=auto], option, title, textarea, script, pre, code, .visually-hidden";
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode;
    if (script.test(text.data) && !text.parentElement.closest(apart)) found.push(text.data.trim().slice(0, 80));
  }
  for (const field of document.querySelectorAll("input:not([type=hidden]), textarea")) {
    if (!script.test(field.value) || field.matches(".mono")) continue;
    const isApart = field.dir === "auto" || getComputedStyle(field).unicodeBidi === "plaintext";
    if (!isApart) found.push(field.outerHTML.slice(0, 80));
  }
  return found;
}
"""


@pytest.fixture
def words(tenant, member):
    """An admin with a Hebrew name, of a tenant whose people write Arabic; the pages where that is seen."""
    admin = member("admin")
    admin.user.name = f"{HEBREW} (3)"
    admin.user.save(update_fields=["name"])
    with tenant_scope(tenant):
        call = ToolCallFactory(
            turn__conversation_id=f"{HEBREW}-12 (B)", turn__style_id="עברית-v2", args=f'{{"city": "{ARABIC}", "n": 12}}'
        )
        case = CaseFactory(behavior=ARABIC, tags=["عربي", "must"], created_by=admin.user)
        replay = make_replay(name=f"{HEBREW} 2", sides=("baseline", "candidate"), created_by=admin.user)
        row = make_row(
            replay, case, standing="failed", change="newly_failing", is_confirmed=True, p=0.0312, num_errors=1
        )
        for side in ("baseline", "candidate"):
            for index, verdict in enumerate(("pass", "fail", "invalid_call", "diverged", "error")):
                make_sample(row, verdict, side=side, index=index)
        schedule = make_schedule(name=f"{ARABIC[:20]} – {HEBREW}")
        make_replay(schedule=schedule, exit_code=1)
        ImportFactory(filename=f"{HEBREW} (2).jsonl")
    return admin, [
        "",
        "calls/",
        f"calls/?conversation={HEBREW}-12 (B)",
        f"calls/{call.pk}/",
        f"review/?call={call.pk}",
        "turns/",
        f"turns/{call.turn_id}/",
        "pending/",
        "run/",
        "proposals/",
        "proposals/tracked/",
        "cases/",
        f"cases/REG-{case.number}/",
        "cases/import/",
        "replays/",
        "replays/new/",
        f"replays/{replay.pk}/",
        f"replays/{replay.pk}/REG-{case.number}/",
        f"replays/trends/?case=REG-{case.number}",
        "replays/schedules/",
        f"replays/schedules/{schedule.pk}/",
        "replays/disputes/",
        "replays/quarantine/",
        "coach/",
        "guidelines/?edit",
        "imports/",
        "export/",
        "export/?what=feedback",
        "members/",
        "audit/",
        "tools/",
        "models/",
        "styles/",
        "schedules/new/",
        "secrets/",
        "tokens/",
    ]


@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_no_page_breaks_where_words_are_longer(desk, words, width):
    admin, paths = words
    ada = desk(admin, viewport={"width": width, "height": 900})
    for path in paths:
        page = ada.open(f"/t/acme/{path}")
        page.evaluate(LONGER)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path
        assert page.evaluate(BROKEN) == [], path
    ada.check()


def test_what_is_written_from_the_right_is_set_apart(desk, words):
    admin, paths = words
    ada = desk(admin)
    seen = 0
    for path in paths:
        page = ada.open(f"/t/acme/{path}")
        assert page.evaluate(ASTRAY) == [], path
        seen += HEBREW in page.content() or ARABIC in page.content()
    assert seen == len(paths)  # the name is in the foot of each
    ada.check()


def test_a_case_is_read_from_the_side_that_its_words_begin_on(desk, words, tenant):
    admin, _ = words
    with tenant_scope(tenant):
        number = Replay.objects.filter(schedule=None).get().cases.get().number
    page = desk(admin).open(f"/t/acme/cases/REG-{number}/")
    behavior = page.locator("#id_behavior")
    assert behavior.input_value() == ARABIC
    assert behavior.evaluate("one => getComputedStyle(one).unicodeBidi") == "plaintext"
    assert page.locator("#e-step-0-tool").evaluate("one => getComputedStyle(one).unicodeBidi") != "plaintext"
