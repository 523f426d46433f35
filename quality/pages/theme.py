"""Light, dark, or as the system says. The choice is a cookie that the server reads, so no page flashes."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

COOKIE = "theme"
ORDER = ("", "light", "dark")  # empty: as the system says


def chosen(request: HttpRequest) -> str:
    theme = request.COOKIES.get(COOKIE, "")
    return theme if theme in ORDER else ""


def after(theme: str) -> str:
    """The theme that the button chooses next."""
    return ORDER[(ORDER.index(theme) + 1) % len(ORDER)]


@require_POST
def choose(request: HttpRequest) -> HttpResponse:
    """Remember the theme for a year and go back to the page the button is on."""
    target = request.POST.get("next", "")
    if not url_has_allowed_host_and_scheme(target, allowed_hosts=None):
        target = "/"
    theme = request.POST.get("theme", "")
    response = redirect(target)
    response.set_cookie(COOKIE, theme if theme in ORDER else "", max_age=365 * 24 * 3600, samesite="Lax", httponly=True)
    return response
