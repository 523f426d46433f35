"""What every request gets: an id, no caching of data pages, the viewer's time zone."""

import logging
import re
import time
import uuid
import zoneinfo
from collections.abc import Callable
from functools import cache

from django.contrib.auth import SESSION_KEY, logout
from django.contrib.auth.signals import user_logged_in
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.utils import timezone
from django.utils.cache import add_never_cache_headers

from quality.streaming import Busy
from tenants.context import request_id
from tenants.sessions import SIGNED_IN_AT, is_over

type View = Callable[[HttpRequest], HttpResponseBase]

RENEW_AFTER_S = 3600
RENEWED_AT = "renewed_at"
_USABLE_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")


CHOSEN_ZONE = "zone"  # the cookie of a choice; `tz` is the browser's own zone


@cache
def _zone_names() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


@cache
def zone_choices() -> list[str]:
    """The zones that a person may choose: those of a region, and UTC."""
    return ["UTC", *sorted(name for name in _zone_names() if "/" in name and not name.startswith("Etc/"))]


def usable_zone(name: str) -> str:
    """The zone of this name, if pages can use it: of the zones that Python knows PostgreSQL takes those of a region,
    and it groups by the viewer's days. Else nothing."""
    return name if name == "UTC" or ("/" in name and name in _zone_names()) else ""


class RequestIdFilter(logging.Filter):
    """Adds `request_id` to each log record."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = request_id.get()
        return True


class RequestIdMiddleware:
    """Takes a proxy's X-Request-ID or makes one; logs, problem answers and audit rows carry it."""

    def __init__(self, get_response: View) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        given = request.headers.get("X-Request-ID", "")
        # Not taken back at the end: Django logs a refused request after the last middleware has returned.
        request_id.set(given if _USABLE_ID.fullmatch(given) else uuid.uuid4().hex)
        response = self.get_response(request)
        response["X-Request-ID"] = request_id.get()
        return response


class NoStoreMiddleware:
    """Pages and answers hold personal data: nothing is kept by browsers or proxies unless the view says otherwise."""

    def __init__(self, get_response: View) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if not response.has_header("Cache-Control"):
            add_never_cache_headers(response)
            response["Cache-Control"] = "no-store, private"
        return response


class BusyMiddleware:
    """Pages' answer where no more long answers can run at once; the API has its own."""

    def __init__(self, get_response: View) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, Busy):
            return None
        response = render(request, "503.html", {"exception": exception}, status=503)
        response["Retry-After"] = "5"
        return response


class SessionRenewalMiddleware:
    """Sessions end after SESSION_COOKIE_AGE without a request, and after SESSION_MAX_AGE_S however busy. Renewed once
    they are an hour old, since a write for each request would cost more than it tells."""

    def __init__(self, get_response: View) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if SESSION_KEY in request.session:
            if is_over(request.session):
                logout(request)
            elif time.time() - request.session.get(RENEWED_AT, 0) > RENEW_AFTER_S:
                renew_session(request)
        return self.get_response(request)


@receiver(user_logged_in)
def begin_session(sender: object, request: HttpRequest, **_: object) -> None:
    request.session[SIGNED_IN_AT] = int(time.time())
    renew_session(request)


def renew_session(request: HttpRequest) -> None:
    """To change a session is to save it, with a new end."""
    request.session[RENEWED_AT] = int(time.time())


class TimeZoneMiddleware:
    """Shows times in the viewer's zone: the one that was chosen, or else the browser's own, which the page tells by the
    cookie `tz`."""

    def __init__(self, get_response: View) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        name = usable_zone(request.COOKIES.get(CHOSEN_ZONE, "")) or usable_zone(request.COOKIES.get("tz", ""))
        with timezone.override(zoneinfo.ZoneInfo(name) if name else None):
            return self.get_response(request)
