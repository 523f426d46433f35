"""Rules of masking as admins keep them, and what others see of them."""

import json
from typing import Any

import pytest
from django.urls import reverse

from tenants import masks
from tenants.masking.masker import MARK
from tenants.models import AuditEvent, MaskRule
from tests.factories import ToolCallFactory, TurnFactory
from tests.pages.conftest import HTMX

FORM = {
    "name": "mail", "kind": "pattern", "expression": "preset:email", "seen_by": "admin", "raw": "kept",
    "is_enabled": "on",
}  # fmt: skip
TEXT = '{"customer": {"full_name": "Alex Example", "email": "alex@example.com"}}'


def url(name: str, **parts: int) -> str:
    return reverse(name, kwargs={"slug": "acme", **parts})


@pytest.fixture
def keep(inside: Any, member: Any) -> Any:
    """`keep(expression=…)`: a rule of acme."""

    def make(**fields: Any) -> MaskRule:
        with inside():
            values = {"name": "mail", "kind": "pattern", "expression": "preset:email", "seen_by": "admin"} | fields
            return masks.save_rule(MaskRule(**values), actor=member("admin").user)

    return make


@pytest.fixture
def rules(inside: Any) -> Any:
    def read() -> list[MaskRule]:
        with inside():
            return list(MaskRule.objects.order_by("name"))

    return read


class TestKeeping:
    def test_an_admin_adds_switches_changes_and_deletes_one(self, browse, rules, inside) -> None:
        admin = browse("admin")
        page = admin.get(url("mask-list")).text
        assert "Nothing is masked" in page
        assert "?start=email" in page
        begun = admin.get(url("mask-new"), {"start": "iban"}).text
        assert 'value="preset:iban"' in begun
        assert "<del><bdi>DE89 3704 0044 0532 0130 00</bdi></del><ins>{masked:iban:" in begun  # tried at once
        assert admin.post(url("mask-new"), FORM).url == url("mask-list")
        (rule,) = rules()
        page = admin.get(url("mask-list")).text
        assert "E-mail addresses" in page
        assert "The rule mail is saved." in page
        admin.post(url("mask-switch", pk=rule.pk))
        assert not rules()[0].is_enabled
        admin.post(url("mask-detail", pk=rule.pk), FORM | {"seen_by": "nobody", "version": 2})
        assert (rules()[0].seen_by, rules()[0].version) == ("nobody", 3)
        admin.post(url("mask-delete", pk=rule.pk))
        assert rules() == []
        with inside():
            kept = AuditEvent.objects.filter(object_type="mask_rule").order_by("pk").values_list("action", flat=True)
            assert list(kept) == ["mask.created", "mask.changed", "mask.changed", "mask.deleted"]

    def test_each_step_is_undone_once_and_not_over_anothers(self, browse, rules, keep) -> None:
        admin = browse("admin")

        def undo() -> str:
            page = admin.get(url("mask-list"))
            return admin.post(url("mask-undo"), {"undo": page.context["undo"]["signed"]}, follow=True).text

        admin.post(url("mask-new"), FORM)
        assert "It is undone." in undo()
        assert rules() == []
        assert admin.get(url("mask-list")).context["undo"] is None
        rule = keep()
        admin.post(url("mask-delete", pk=rule.pk))
        undo()
        (rule,) = rules()
        assert rule.expression == "preset:email"
        admin.post(url("mask-switch", pk=rule.pk))
        undo()
        assert rules()[0].is_enabled
        admin.post(url("mask-switch", pk=rule.pk))
        browse("admin").post(url("mask-detail", pk=rule.pk), FORM | {"version": rules()[0].version})
        assert "Nothing was undone." in undo()
        assert "too late to undo" in admin.post(url("mask-undo"), {"undo": "forged"}, follow=True).text

    def test_a_stale_write_is_answered_with_both_values(self, browse, rules, keep) -> None:
        rule = keep()
        mine, theirs = browse("admin"), browse("admin")
        theirs.post(url("mask-detail", pk=rule.pk), FORM | {"seen_by": "nobody", "version": 1})
        late = mine.post(url("mask-detail", pk=rule.pk), FORM | {"seen_by": "operator", "version": 1})
        assert (late.status_code, rules()[0].seen_by) == (409, "nobody")
        assert late.context["stale"] == [
            {"label": "Who reads the value itself", "yours": "Operators and admins", "theirs": "Nobody"}
        ]
        again = FORM | {"seen_by": "operator", "version": late.context["form"]["version"].value()}
        assert mine.post(url("mask-detail", pk=rule.pk), again).status_code == 302
        assert rules()[0].seen_by == "operator"

    @pytest.mark.parametrize(
        ("fields", "told"),
        [
            ({"kind": "path", "expression": "$"}, "The path $ alone would mask everything."),
            ({"kind": "path", "expression": "customer"}, "This is no JSON path"),
            ({"expression": "(a"}, "This is no regular expression of RE2"),
            ({"expression": "a*"}, "This pattern fits the empty text."),
            ({"expression": "preset:shoe-size"}, "There is no such preset."),
            ({"kind": "key", "expression": ", -"}, "Name at least one member"),
            ({"name": "E mail"}, "Lower-case letters, digits and dashes only"),
            ({"name": "taken"}, "There is a rule of this name already."),
            ({"raw": "dropped"}, "Say that you know it"),
        ],
    )
    def test_faults_are_told_where_they_are(self, browse, rules, keep, fields, told) -> None:
        keep(name="taken")
        answer = browse("admin").post(url("mask-new"), FORM | fields)
        assert (answer.status_code, told in answer.text) == (400, True)
        assert len(rules()) == 1

    def test_what_is_never_stored_is_said_to_be_known_once(self, browse, rules) -> None:
        admin = browse("admin")
        admin.post(url("mask-new"), FORM | {"raw": "dropped", "understood": "on"})
        (rule,) = rules()
        assert not rule.keeps_raw
        assert admin.post(url("mask-detail", pk=rule.pk), FORM | {"raw": "dropped", "version": 1}).status_code == 302


class TestTrying:
    def tried(self, client: Any, **fields: Any) -> str:
        return client.post(url("mask-try"), FORM | {"text": TEXT, "reader": ""} | fields, headers=HTMX).text

    def test_a_text_is_shown_with_what_is_hidden_and_its_mark(self, browse) -> None:
        admin = browse("admin")
        assert "<del><bdi>alex@example.com</bdi></del><ins>{masked:mail:" in self.tried(admin)
        assert "{masked:rule:" in self.tried(admin, name="Not yet a na")
        key = self.tried(admin, kind="key", expression="fullName", text=f"{TEXT}")
        assert "1 value is masked" in key
        assert "Nothing is masked" in self.tried(admin, text="no address here")
        assert "1 value is masked" in self.tried(admin, text="{write to} alex@example.com")
        assert "This is no JSON path" in self.tried(admin, kind="path", expression="customer.email")
        assert "Say what it finds" in self.tried(admin, expression=" ")
        assert 'id="touched"' in self.tried(admin)  # what was counted was of the rule before
        script = self.tried(admin, expression="<script>.*", text="<script>alert(1)</script>")
        assert "<script>" not in script

    def test_readers_see_what_other_rules_leave(self, browse, keep) -> None:
        keep(name="who", kind="key", expression="full_name", seen_by="operator")
        keep(name="out", expression="Example", seen_by="operator", masks_exports=True)
        admin = browse("admin")

        def marks(**fields: Any) -> set[str]:
            return {mark.group(1) for mark in MARK.finditer(self.tried(admin, **fields))}

        assert marks(reader="viewer") == {"mail", "who"}
        assert marks(reader="operator") == {"mail"}
        assert marks(reader="admin") == set()
        assert marks(reader="admin", raw="dropped") == {"mail"}
        assert marks(reader="export", text="Alex Example") == {"out"}

    def test_the_last_call_of_a_tool_and_the_newest_calls(self, browse, make_call, keep, inside) -> None:
        admin = browse("admin")
        old = make_call(tool_name="refund", args='{"to": "old@example.com"}')
        with inside():
            turn = TurnFactory()
            said = {"args": '{"to": "alex@example.com"}', "result": '"sent"', "error": "no alex@example.com"}
            later = old.started_at.replace(year=2030)
            new = ToolCallFactory(turn=turn, tool_name="refund", started_at=later, **said)
            ToolCallFactory(turn=turn, index=1, args="{}", result="[]")
        page = self.tried(admin, source="refund")
        assert "alex@example.com" in page
        assert "old@example.com" not in page
        assert "2 values are masked" in page
        assert url("call-detail", pk=new.pk) in page
        assert "There is no call of this tool any more." in self.tried(admin, source="gone")
        counted = admin.post(url("mask-count"), FORM, headers=HTMX)
        assert counted.context["touched"].count == 2
        assert (counted.context["touched"].of, counted.context["touched"].tools) == (3, [("refund", 2)])
        assert "It hides something in 2 of the newest 3 calls" in counted.text
        assert "example.com" not in counted.text
        # What a rule hides from admins, too, is not shown here; it is counted all the same.
        keep(seen_by="nobody")
        assert "alex@" not in self.tried(admin, name="other", source="refund")
        assert admin.post(url("mask-count"), FORM, headers=HTMX).context["touched"].count == 2


class TestReaders:
    @pytest.mark.parametrize("role", ["operator", "viewer"])
    def test_others_see_that_there_are_rules_and_not_what_they_find(self, browse, keep, role) -> None:
        keep()
        rule = keep(name="patient", expression="Alex Example")
        client = browse(role)
        page = client.get(url("mask-list")).text
        assert "E-mail addresses" in page
        assert page.count("masked for you") == 2
        assert "Alex Example" not in page
        assert "Add a rule" not in page
        for name in ("mask-new", "mask-try", "mask-count", "mask-undo"):
            assert client.post(url(name), FORM).status_code == 403, name
        for name in ("mask-detail", "mask-switch", "mask-delete"):
            assert client.post(url(name, pk=rule.pk), FORM).status_code == 403, name
        assert client.get(url("mask-detail", pk=rule.pk)).status_code == 403

    def test_another_tenants_rules_do_not_exist(self, outsider, keep) -> None:
        rule = keep()
        assert outsider.get(url("mask-list")).status_code == 404
        theirs = reverse("mask-detail", kwargs={"slug": "other", "pk": rule.pk})
        assert outsider.get(theirs).status_code == 404

    def test_a_note_stands_where_something_is_masked_for_the_reader(self, browse, make_call, keep) -> None:
        keep()
        masked, plain = make_call(args=json.dumps({"to": "alex@example.com"})), make_call(args="{}")
        viewer, admin = browse("viewer"), browse("admin")
        note = "Some values are masked for your role"
        assert note in viewer.get(url("call-detail", pk=masked.pk)).text
        assert note not in viewer.get(url("call-detail", pk=plain.pk)).text
        assert note not in admin.get(url("call-detail", pk=masked.pk)).text
