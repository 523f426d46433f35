"""The outbound guard: the only place that opens a connection to the outside.

`urls` and `names` read a URL in one way only, `template` fills one, `addresses` and `policy` judge it, `dial` looks up
and connects, `guard` sends single requests (tools) and makes pooled clients (model servers). What is refused is told
by a code from `codes`.
"""

from httpx import AsyncClient as Client  # what `Guard.client` gives; others name the type without a way to make one

from engine.net.addresses import is_public, parse_address
from engine.net.codes import Code, Refused
from engine.net.dial import Dialler, Resolver, system_resolver
from engine.net.guard import MAX_BODY, Guard, Headers, Request, Response, is_method
from engine.net.names import canonical_host, parse_host_list
from engine.net.policy import PORTS, Policy
from engine.net.proxy import EgressProxy
from engine.net.slots import Slots
from engine.net.template import (
    HeaderTemplate,
    UrlTemplate,
    encode_query_value,
    parse_header_template,
    parse_url_template,
)
from engine.net.urls import Url, parse_url

__all__ = [
    "MAX_BODY",
    "PORTS",
    "Client",
    "Code",
    "Dialler",
    "EgressProxy",
    "Guard",
    "HeaderTemplate",
    "Headers",
    "Policy",
    "Refused",
    "Request",
    "Resolver",
    "Response",
    "Slots",
    "Url",
    "UrlTemplate",
    "canonical_host",
    "encode_query_value",
    "is_method",
    "is_public",
    "parse_address",
    "parse_header_template",
    "parse_host_list",
    "parse_url",
    "parse_url_template",
    "system_resolver",
]
