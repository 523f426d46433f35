"""One template a page; htmx gets a part of it."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.cache import patch_vary_headers


def render_page(
    request: HttpRequest, template: str, context: dict[str, Any], *, partial: str, status: int = 200
) -> HttpResponse:
    """The whole page for a browser, only `partial` of the same template for an htmx swap."""
    htmx = request.htmx  # type: ignore[attr-defined]
    if htmx and not htmx.history_restore_request and not htmx.boosted:  # the back button needs the page whole
        template = f"{template}#{partial}"
    response = render(request, template, context, status=status)
    patch_vary_headers(response, ["HX-Request"])
    return response
