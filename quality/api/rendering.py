"""JSON out: UTF-8, evidence embedded as it was spelled."""

from collections.abc import Mapping
from typing import Any

import msgspec
from rest_framework.renderers import BaseRenderer


class JSONRenderer(BaseRenderer):
    """Renders plain values, dates, and `msgspec.Raw` for text that is JSON already."""

    media_type = "application/json"
    format = "json"
    charset = None

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        return b"" if data is None else msgspec.json.encode(data)


class NDJSONRenderer(BaseRenderer):
    """Stands for a stream of JSON lines when the client and we agree on a media type; such a view renders itself."""

    media_type = "application/x-ndjson"
    format = "ndjson"

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        return b"" if data is None else msgspec.json.encode(data) + b"\n"


class CSVRenderer(JSONRenderer):
    """The same for CSV; errors are told as JSON."""

    media_type = "text/csv"
    format = "csv"
