"""The OpenAPI schema, and the page that shows it. Open to all: they hold no data."""

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.csp import CSP
from django.views.decorators.csp import csp_override
from drf_spectacular.renderers import OpenApiJsonRenderer2, OpenApiYamlRenderer
from drf_spectacular.views import SpectacularAPIView

from quality.api.problems import read_only

_TEXT = {"type": "string"}
_PROBLEM = {
    "type": "object",
    "description": "What went wrong (RFC 9457). A write that came too late adds what is there now and what was sent.",
    "required": ["type", "title", "status", "detail", "errors", "requestId"],
    "properties": {
        "type": _TEXT,
        "title": _TEXT,
        "status": {"type": "integer"},
        "detail": _TEXT,
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["path", "code", "message"],
                "properties": {"path": _TEXT, "code": _TEXT, "message": _TEXT},
            },
        },
        "requestId": _TEXT,
        "current": {
            "type": "object",
            "properties": {
                "version": {"type": "integer"},
                "labels": {"type": "array", "items": {"$ref": "#/components/schemas/Feedback"}},
            },
        },
        "sent": {"type": "object", "nullable": True},
    },
}
_ANSWER = {
    "description": "Any error",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


def add_problems(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Postprocessing hook: every operation may answer with a problem."""
    result["components"]["schemas"]["Problem"] = _PROBLEM
    for operations in result["paths"].values():
        for operation in operations.values():
            operation["responses"]["default"] = _ANSWER
    return result


class SchemaView(SpectacularAPIView):
    """The schema: JSON unless YAML is asked for."""

    renderer_classes = [OpenApiJsonRenderer2, OpenApiYamlRenderer]


# The page's own style sheet draws its icons from data: addresses. Scripts and styles stay as strict as everywhere.
_POLICY: Any = {**settings.SECURE_CSP, "img-src": [CSP.SELF, "data:"]}


@read_only
@csp_override(_POLICY)
def docs(request: HttpRequest) -> HttpResponse:
    return render(request, "api/docs.html")
