"""HTTP tools: a definition, a guard, and the request of each call."""

import base64
import codecs
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from engine import net
from engine.redaction import Redactor
from engine.text import truncate
from engine.tools.base import Arguments, Mode, Safety, ToolContext, ToolOutcome, failed
from engine.tools.definitions import HttpDefinition
from engine.tools.registry import invalid_arguments

IN_QUERY = frozenset(("GET", "HEAD", "OPTIONS", "TRACE", "DELETE"))  # where arguments go that the URL does not use

# Charsets that a server may declare and that are not UTF-8. Others would let a server choose any of Python's codecs.
_CHARSETS = frozenset(
    ("iso8859-1", "cp1252", "iso8859-15", "iso8859-2", "cp1251", "koi8-r", "utf-16", "shift_jis", "gbk")
)


@dataclass(frozen=True, slots=True)
class HttpTool:
    """A tool that sends one HTTP request. The definition is judged on each call, for a stored one may have changed."""

    definition: HttpDefinition
    guard: net.Guard

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def description(self) -> str:
        return self.definition.description

    @property
    def parameters(self) -> Mapping[str, Any]:
        return self.definition.parameters

    @property
    def mode(self) -> Mode:
        return self.definition.mode

    @property
    def safety(self) -> Safety:
        return self.definition.safety

    @property
    def placeholders(self) -> frozenset[str]:
        """Arguments that the request needs, declared or not."""
        try:
            url, headers = _templates(self.definition)
        except net.Refused:
            return frozenset()
        return url.names.union(*(header.names for header in headers))

    async def execute(self, arguments: Arguments, context: ToolContext) -> ToolOutcome:
        method = self.definition.method.upper()
        if not net.is_method(method):
            return failed(
                f"Error: invalid HTTP method '{self.definition.method}' for tool '{self.name}'",
                context,
                error="invalid_method",
            )
        secrets = _Secrets(context)
        try:
            request = build_request(self.definition, arguments, secrets.get, context.idempotency_key)
            response = await self.guard.fetch(
                request, deadline=context.deadline, follow_redirects=self.definition.follow_redirects
            )
        except net.Refused as exc:
            return self._refusal(exc, context)
        return _outcome(request, response, secrets.redactor, context.result_limit)

    def _refusal(self, refused: net.Refused, context: ToolContext) -> ToolOutcome:
        if refused.code == net.Code.INVALID_ARGUMENT:
            path = f"$.{refused.argument}" if refused.argument else "$"
            return invalid_arguments(self.name, path, refused.message, context)
        return failed(f"Error: tool request failed: {refused}", context, error=refused.code)


class _Secrets:
    """Takes secrets from the context as they are needed, and knows from then on what must not be seen."""

    def __init__(self, context: ToolContext) -> None:
        self._source = context.secrets
        self.redactor: Redactor = context.redactor

    def get(self, name: str) -> str:
        value = self._source(name)
        if value is None:
            raise net.Refused(net.Code.SECRET_MISSING, f"there is no secret {name}; set it in the tenant's secrets")
        self.redactor = self.redactor.with_secret(name, value)
        return value


def build_request(
    definition: HttpDefinition, arguments: Mapping[str, Any], secret: Callable[[str], str], idempotency_key: str = ""
) -> net.Request:
    """The request of one call. Arguments that the URL uses are not sent again. Raises `net.Refused`."""
    method = definition.method.upper()
    url_template, header_templates = _templates(definition)
    url = url_template.fill(arguments)
    headers = [template.fill(arguments, secret) for template in header_templates]
    rest = {name: value for name, value in arguments.items() if name not in url_template.names}
    body = None
    if method in IN_QUERY:
        url = _with_query(url, rest)
    else:
        body = _json(rest).encode("ascii")
        headers = _with_default(headers, "Content-Type", "application/json")
    if idempotency_key and definition.safety is Safety.UNSAFE:
        headers = _with_default(headers, "Idempotency-Key", idempotency_key)
    return net.Request(method, url, tuple(headers), body)


def _templates(definition: HttpDefinition) -> tuple[net.UrlTemplate, list[net.HeaderTemplate]]:
    return (
        net.parse_url_template(definition.url),
        [net.parse_header_template(name, value) for name, value in definition.headers.items()],
    )


def _with_default(headers: list[tuple[str, str]], name: str, value: str) -> list[tuple[str, str]]:
    if any(configured.lower() == name.lower() for configured, _ in headers):
        return headers
    return [*headers, (name, value)]


def _with_query(url: net.Url, arguments: Mapping[str, Any]) -> net.Url:
    """Lists repeat their name, objects are JSON text, null is left out."""
    pairs = [
        f"{net.encode_query_value(name, name)}={net.encode_query_value(name, _query_text(item))}"
        for name, value in arguments.items()
        for item in (value if isinstance(value, list) else [value])
        if item is not None
    ]
    if not pairs:
        return url
    joint = "&" if "?" in url.target else "?"
    return replace(url, target=url.target + joint + "&".join(pairs))


def _query_text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value, ensure_ascii=False, separators=(",", ":"))


def _json(value: Any, **options: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False, **options)
    except (ValueError, RecursionError) as exc:  # NaN, integers of 4,300 digits, nesting without end
        raise net.Refused(net.Code.INVALID_ARGUMENT, "the arguments cannot be written as JSON") from exc


def _outcome(request: net.Request, response: net.Response, redactor: Redactor, limit: int) -> ToolOutcome:
    body = redactor.data(response.body)
    charset = _charset(response.header("content-type"))
    details = {"status": response.status, "method": request.method, "url": redactor.text(str(request.url))}
    try:
        evidence, encoding = body.decode("utf-8"), "text"
        shown = evidence.removeprefix("\ufeff")
    except UnicodeDecodeError:
        shown = redactor.text(lossy := _lossy(body, charset))
        # A secret that only shows up once decoded must not stay behind in the bytes.
        evidence, encoding = (base64.b64encode(body).decode("ascii"), "base64") if shown == lossy else (shown, "text")
    if 200 <= response.status < 300:
        text = truncate(shown, limit) if shown else f"HTTP {response.status}"
        return ToolOutcome(text, evidence, encoding=encoding, charset=charset, details=details)
    return ToolOutcome(
        f"Error: HTTP {response.status} — {truncate(shown, limit)}",
        evidence,
        is_error=True,
        error="http_status",
        encoding=encoding,
        charset=charset,
        details=details,
    )


def _charset(content_type: str) -> str | None:
    for parameter in content_type.split(";")[1:]:
        key, _, value = parameter.partition("=")
        if key.strip().lower() == "charset":
            return value.strip().strip('"').lower() or None
    return None


def _lossy(body: bytes, charset: str | None) -> str:
    """What a reader sees of a body that is not UTF-8; the bytes themselves are kept beside it."""
    try:
        name = codecs.lookup(charset or "utf-8").name
    except (LookupError, ValueError):
        name = "utf-8"
    return body.decode(name if name in _CHARSETS else "utf-8", "replace")
