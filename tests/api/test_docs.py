"""The OpenAPI schema and the page that shows it."""

import json
from typing import Any

import pytest
from django.test import Client
from drf_spectacular.validation import validate_schema

from quality.models import Label
from tests.service import Service


@pytest.fixture
def schema(db: None) -> dict[str, Any]:
    response = Client().get("/api/schema")
    assert response.status_code == 200
    found: dict[str, Any] = response.json()
    return found


def test_the_schema_is_valid_openapi(schema: dict[str, Any]) -> None:
    validate_schema(schema)


def test_each_operation_has_a_name_a_token_and_problems(schema: dict[str, Any]) -> None:
    operations = [(path, operation) for path, found in schema["paths"].items() for operation in found.values()]
    names = [operation["operationId"] for _, operation in operations]
    assert len(set(names)) == len(names)
    assert {"listToolCalls", "getToolCall", "labelToolCall", "labelTurn", "exportFeedback"} <= set(names)
    for path, operation in operations:
        assert path.startswith(("/api/", "/v1/"))
        assert operation["security"] == [{"token": []}], path
        assert "application/problem+json" in operation["responses"]["default"]["content"], path


def test_labels_are_named_in_the_schema(schema: dict[str, Any]) -> None:
    request = schema["components"]["schemas"]["LabelRequest"]
    reference = request["properties"]["label"]["$ref"].rpartition("/")[2]
    assert schema["components"]["schemas"][reference]["enum"] == Label.values
    assert request["required"] == ["label"]


def test_corrections_are_typed_in_the_schema(schema: dict[str, Any]) -> None:
    components = schema["components"]["schemas"]
    correction = components["LabelRequest"]["properties"]["correction"]
    assert json.dumps(correction).count("#/components/schemas/Correction") == 1
    assert set(components["Correction"]["properties"]) == {"tool", "offered", "arguments", "position"}
    assert components["Correction"]["properties"]["arguments"]["type"] == "object"


@pytest.mark.browser
def test_the_page_renders_under_our_content_policy(live_service: Service, chromium: str) -> None:
    from playwright.sync_api import sync_playwright

    told: list[str] = []
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=chromium) as browser:
        page = browser.new_page()
        page.on("console", lambda message: told.append(message.text))
        page.on("pageerror", lambda error: told.append(str(error)))
        answer = page.goto(f"{live_service.url}/docs#/Feedback/labelToolCall")
        assert answer
        assert "unsafe" not in answer.headers["content-security-policy"]
        page.get_by_text("Label a call. The same label").wait_for()
        page.locator(".authorize").first.click()
        page.get_by_text("An API token of a tenant").wait_for()
        assert page.evaluate("localStorage.length") == 0
    assert told == []
