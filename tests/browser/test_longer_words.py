"""Other languages take more room than English, and some begin on the right: no page may break on either."""

import pytest

from quality.models import Replay
from tenants.scope import tenant_scope
from tests.factories import CaseFactory, ImportFactory, ToolCallFactory
from tests.pages.replay_rows import make_replay, make_row, make_sample
from tests.replay.rows import make_schedule

pytestmark = pytest.mark.browser

HEBREW, ARABIC = "שלום עולם", "تذكير الموعد يوم الاثنين الساعة ١٠:٣٠ (غرفة B12) ثم تأكيد الحجز"

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
