"""Styles: versions with what changed, skills that narrow the tools, and what a turn gets of them."""

import pytest
from django.core.exceptions import ValidationError
from django.db import connection
from django.test.utils import CaptureQueriesContext

from quality.turns.resolver import Conversation, from_settings, resolve_tools
from quality.turns.setup import Asked, SetupRefused
from tenants import endpoints, styles, tools
from tenants.models import Skill, Style, StyleVersion
from tenants.scope import tenant_scope
from tests.settings.http_tools import definition

PAGE = "/t/acme/styles/"
FORM = {"style_id": "friendly", "name": "Friendly", "system_prompt": "Be kind.\r\nBe short."}
TEXT = styles.StyleText("Be kind.", (("Hi", "Hello!"),), ())


@pytest.fixture
def admin(member):
    return member("admin").user


def save(admin, **fields) -> Style:
    return styles.save_style(**{"style_id": "friendly", "name": "Friendly", "text": TEXT, "actor": admin} | fields)


def test_a_changed_text_is_a_new_version_and_the_same_one_is_not(inside, admin):
    with inside():
        style = save(admin)
        save(admin, pk=style.pk, name="Friendlier")
        assert Style.objects.get().version == 1
        save(admin, pk=style.pk, text=styles.StyleText("Be brief."))
        assert list(StyleVersion.objects.order_by("number").values_list("number", "system_prompt")) == [
            (1, "Be kind."), (2, "Be brief."),
        ]  # fmt: skip


def test_there_is_one_default_at_most(inside, admin):
    with inside():
        save(admin, is_default=True)
        save(admin, style_id="formal", is_default=True)
        assert list(Style.objects.filter(is_default=True).values_list("style_id", flat=True)) == ["formal"]


@pytest.mark.parametrize(
    "fields",
    [
        {"style_id": "No Spaces"},
        {"style_id": ""},
        {"name": ""},
        {"text": styles.StyleText("x" * 100_001)},
        {"text": styles.StyleText("a\0b")},
        {"text": styles.StyleText(examples=(("a", "b"),) * 51)},
        {"text": styles.StyleText(skills=("nobody",))},
    ],
)
def test_what_cannot_be_is_refused(inside, admin, fields):
    with inside(), pytest.raises(ValidationError):
        save(admin, **fields)


def test_a_skill_that_a_style_has_stays(inside, admin):
    with inside():
        skill = styles.save_skill(name="orders", description="", tools=["get_order"], actor=admin)
        style = save(admin, text=styles.StyleText(skills=("orders",)))
        with pytest.raises(ValidationError, match="Style friendly has this skill"):
            styles.delete_skill(skill=skill, actor=admin)
        styles.delete_style(style=style, actor=admin)
        styles.delete_skill(skill=skill, actor=admin)
        assert not StyleVersion.objects.exists()


class TestTurns:
    @pytest.fixture
    def two_tools(self, tenant, admin):
        with tenant_scope(tenant):
            for name in ("get_order", "get_stock"):
                tools.save_tool(definition(name=name), actor=admin)
            styles.save_skill(name="orders", description="", tools=["get_order"], actor=admin)

    def names(self, tenant, style_id: str = "") -> list[str]:
        return [tool.name for tool in resolve_tools(tenant, Conversation(style_id=style_id, run="r")).tools]

    def test_skills_narrow_the_tools(self, tenant, two_tools, admin):
        assert self.names(tenant) == ["get_order", "get_stock"]
        with tenant_scope(tenant):
            save(admin, text=styles.StyleText(skills=("orders",)))
        assert self.names(tenant) == ["get_order", "get_stock"]
        assert self.names(tenant, "friendly") == ["get_order"]
        with tenant_scope(tenant):
            styles.save_skill(
                name="orders", description="", tools=["get_stock"], actor=admin, pk=Skill.objects.get().pk
            )
        assert self.names(tenant, "friendly") == ["get_stock"]

    def test_a_turn_that_names_no_style_gets_the_default(self, tenant, two_tools, admin):
        with tenant_scope(tenant):
            save(admin, text=styles.StyleText(skills=("orders",)), is_default=True)
        assert self.names(tenant) == ["get_order"]

    def test_a_style_that_is_not_there_refuses_the_turn(self, tenant):
        with pytest.raises(SetupRefused, match="There is no style 'gone'"):
            self.names(tenant, "gone")

    def test_a_turn_gets_prompt_examples_and_the_version_it_used(self, tenant, admin):
        data = endpoints.EndpointData(label="fast", base_url="https://llm.example.com/v1", model="tiny")
        with tenant_scope(tenant):
            endpoints.save_endpoint(data, actor=admin)
            style = save(admin)
            save(admin, pk=style.pk, text=styles.StyleText("Be brief.", (("Hi", "Hello!"),)))
            setup = from_settings(Asked(tenant.pk, 1, "c", "", "friendly"))
        assert setup.system == "Be brief.\n\nExamples of good answers:\n\nUser: Hi\nAssistant: Hello!"
        assert (setup.style_id, setup.prompt_version) == ("friendly", "friendly@2")
        assert setup.endpoint.base_url == "https://llm.example.com/v1"

    def test_a_label_without_a_model_refuses_the_turn(self, tenant):
        with tenant_scope(tenant), pytest.raises(SetupRefused, match="no enabled model with the label expert"):
            from_settings(Asked(tenant.pk, 1, "c", "expert", ""))


class TestPages:
    def test_a_style_is_added_changed_compared_and_brought_back(self, browse, inside):
        client = browse()
        page = client.post(f"{PAGE}create/", FORM, follow=True).text
        assert "friendly is at version 1" in page
        with inside():
            pk = Style.objects.get().pk
            assert StyleVersion.objects.get().system_prompt == "Be kind.\nBe short."
        changed = FORM | {"system_prompt": "Be kind.\nBe long.", "examples": '[{"user": "Hi", "assistant": "Hello!"}]'}
        page = client.post(f"{PAGE}{pk}/save/", changed, follow=True).text
        assert "<ins>+ <bdi>Be long.</bdi></ins>" in page
        assert "<del>- <bdi>Be short.</bdi></del>" in page
        assert "version 3" in client.post(f"{PAGE}{pk}/restore/1/", follow=True).text
        assert client.post(f"{PAGE}{pk}/restore/9/").status_code == 404
        client.post(f"{PAGE}{pk}/delete/")
        with inside():
            assert not Style.objects.exists()

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"style_id": "Bad Id"}, "Lower-case letters"),
            ({"examples": "{"}, "This is not JSON"),
            ({"examples": '{"a": 1}'}, "JSON array is needed"),
            ({"examples": '[{"user": "x"}]'}, "Example 1 needs user and assistant"),
            ({"examples": '[{"user": 1, "assistant": "x"}]'}, "both are texts"),
            ({"skills": "nobody"}, "Select a valid choice"),
        ],
    )
    def test_bad_input_is_told_back_and_kept(self, browse, inside, change, told):
        page = browse().post(f"{PAGE}create/", FORM | change).text
        assert told in page
        assert "Be kind." in page
        with inside():
            assert not Style.objects.exists()

    def test_a_skill_is_made_of_tools_there_are(self, browse, inside):
        client = browse()
        path = "/t/acme/skills/save/"
        client.post(path, {"name": "booking", "tools": "offer_booking_link"})
        assert "Select a valid choice" in client.post(path, {"name": "other", "tools": "nobody"}).text
        with inside():
            skill = Skill.objects.get()
            assert skill.tools == ["offer_booking_link"]
        client.post(f"/t/acme/skills/{skill.pk}/delete/")
        with inside():
            assert not Skill.objects.exists()

    def test_text_of_a_prompt_is_inert(self, browse, inside):
        client = browse()
        client.post(f"{PAGE}create/", FORM | {"system_prompt": "</textarea><script>alert(1)</script>"})
        with inside():
            pk = Style.objects.get().pk
        assert "<script>alert" not in client.get(f"{PAGE}{pk}/").text

    def test_readers_read_and_outsiders_get_404(self, browse, outsider, inside, admin):
        with inside():
            style = save(admin)
        writes = (f"{PAGE}create/", f"{PAGE}{style.pk}/save/", f"{PAGE}{style.pk}/delete/",
                  f"{PAGE}{style.pk}/restore/1/", "/t/acme/skills/save/", "/t/acme/skills/1/delete/")  # fmt: skip
        for role in ("viewer", "operator"):
            client = browse(role)
            for path in (PAGE, f"{PAGE}{style.pk}/"):
                assert client.get(path).status_code == 200
            assert client.get(f"{PAGE}new/").status_code == 403
            for path in writes:
                assert client.post(path, FORM).status_code == 403
        for path in writes:
            assert outsider.post(path, FORM).status_code == 404
        assert outsider.post(f"/t/globex/styles/{style.pk}/save/", FORM).status_code == 404
        assert outsider.get(f"/t/globex/styles/{style.pk}/").status_code == 404

    def test_the_list_costs_the_same_for_one_and_for_twenty(self, browse, inside, admin, django_assert_num_queries):
        client = browse()
        with inside():
            save(admin)
        client.get(PAGE)
        with CaptureQueriesContext(connection) as one:
            client.get(PAGE)
        with inside():
            for number in range(20):
                save(admin, style_id=f"s{number}")
        with django_assert_num_queries(len(one)):
            client.get(PAGE)


def test_styles_are_saved_and_listed_over_the_api(api):
    client, path = api(), "/api/admin/styles"
    body = {"styleId": "friendly", "name": "Friendly", "systemPrompt": " Be kind. ", "isDefault": True}
    assert client.post(path, body).json()["version"] == 1
    assert client.post(path, body | {"systemPrompt": "Be brief."}).json()["version"] == 2
    (listed,) = client.get(path).json()["styles"]
    assert (listed["systemPrompt"], listed["version"], listed["isDefault"]) == ("Be brief.", 2, True)
    refused = client.post(path, body | {"skills": ["nobody"]})
    assert (refused.status_code, refused.json()["errors"][0]["path"]) == (400, "skills")
    assert api("read").post(path, body).status_code == 403
