"""What every request gets: an id, no caching of data pages, the viewer's time zone."""

import logging
import re
import uuid
import zoneinfo
from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone
from django.utils.cache import add_never_cache_headers

from tenants.context import request_id

type View = Callable[[HttpRequest], HttpResponseBase]

_USABLE_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")


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


class TimeZoneMiddleware:
    """Shows times in the viewer's zone: the cookie `tz` is set by the page from the browser's own setting."""

    def __init__(self, get_response: View) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        name = request.COOKIES.get("tz", "")
        try:
            zone = zoneinfo.ZoneInfo(name) if name else None
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            zone = None
        with timezone.override(zone):
            return self.get_response(request)
