"""JSON in: strict (see quality/ingest/jsontext.py), an object, and with the sender's spelling at hand."""

from collections.abc import Mapping
from typing import IO, Any

from rest_framework.parsers import BaseParser

from quality.api.problems import InvalidRequest, fault
from quality.ingest.jsontext import MAX_BYTES, JsonError, Node, parse


class Body(dict[str, Any]):
    """A parsed object; `node` has its parts as they were spelled."""

    def __init__(self, node: Node) -> None:
        super().__init__(node.value)
        self.node = node


class StrictJSONParser(BaseParser):
    """At most 5 MiB of UTF-8, 100 levels, no key twice, no number that a double cannot hold."""

    media_type = "application/json"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Body:
        raw = stream.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise InvalidRequest([fault("", "too_large", f"The body is larger than {MAX_BYTES:,} bytes.")], status=413)
        try:
            node = parse(raw)
        except JsonError as error:
            where = f"{error.message} (line {error.line}, column {error.column})"
            raise InvalidRequest([fault(error.path, error.code, where)]) from error
        if not isinstance(node.value, dict):
            raise InvalidRequest([fault("", "not_an_object", "The body must be a JSON object.")])
        return Body(node)
