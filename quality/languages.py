"""The language of a page: what the person set, else the cookie, else the browser's wish, else English.

Programs are answered in English whatever they ask for: what they read has one spelling.
"""

from collections.abc import Callable
from decimal import Decimal

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.utils import formats, translation
from django.utils.cache import patch_vary_headers
from django.utils.translation import get_language_info, trans_real

type View = Callable[[HttpRequest], HttpResponseBase]

COOKIE = "language"
OF_PROGRAMS = ("/api/", "/v1/", "/healthz", "/docs")


def known(code: str) -> str:
    """`code` if the interface is there in it, else empty."""
    return code if code in dict(settings.LANGUAGES) else ""


def names() -> list[tuple[str, str]]:
    """(code, the language's name in itself) of each language there is."""
    return [(code, get_language_info(code)["name_local"].capitalize()) for code, _ in settings.LANGUAGES]


def chosen(request: HttpRequest) -> str:
    """The language that a person set, on the account or in this browser; empty: as the browser wishes."""
    of_user = known(getattr(request.user, "language", "")) if request.user.is_authenticated else ""
    return of_user or known(request.COOKIES.get(COOKIE, ""))


def wished(header: str) -> str:
    """The best of our languages for an Accept-Language header; English where none is named."""
    for code, _ in trans_real.parse_accept_lang_header(header):
        if found := known(code.partition("-")[0]):
            return found
    return settings.LANGUAGE_CODE


def number(value: float | Decimal, digits: int = 0) -> str:
    """A figure for people, rounded to `digits` after the point: 1234.5 is 1,234.5 in English and 1.234,5 in Italian."""
    return str(formats.number_format(Decimal(f"{value:.{digits}f}"), digits))


class LanguageMiddleware:
    """Activates the language of a page, and says of which headers the page is made."""

    def __init__(self, get_response: View) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.path.startswith(OF_PROGRAMS):
            with translation.override(settings.LANGUAGE_CODE):
                return self.get_response(request)
        code = chosen(request) or wished(request.headers.get("Accept-Language", ""))
        with translation.override(code):
            response = self.get_response(request)
        patch_vary_headers(response, ("Accept-Language", "Cookie"))
        response.headers.setdefault("Content-Language", code)
        return response
