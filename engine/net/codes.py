"""Why a request was not sent, or not finished: a closed set. Tenants and models see these, and nothing from inside."""

from enum import StrEnum

from engine.errors import OutboundError


class Code(StrEnum):
    INVALID_URL = "invalid_url"  # not an absolute http(s) URL, or one that parsers read differently
    INVALID_ARGUMENT = "invalid_argument"  # a value that may not stand where its placeholder does
    INVALID_HEADER = "invalid_header"
    SECRET_MISSING = "secret_missing"  # noqa: S105 a code, not a secret
    SCHEME_NOT_ALLOWED = "scheme_not_allowed"
    PORT_NOT_ALLOWED = "port_not_allowed"
    HOST_NOT_ALLOWED = "host_not_allowed"  # internal name, numeric spelling, or not on the tenant's list
    ADDRESS_NOT_ALLOWED = "address_not_allowed"  # the address, or one of the answers for the name, is not public
    DNS_FAILED = "dns_failed"
    REDIRECT_NOT_ALLOWED = "redirect_not_allowed"
    BUSY = "busy"  # too many requests of this tenant at once
    CONNECT_FAILED = "connect_failed"
    TLS_FAILED = "tls_failed"
    TIMED_OUT = "timed_out"
    TOO_LARGE = "too_large"
    PROTOCOL_ERROR = "protocol_error"  # what came back is not HTTP, or was cut


class Refused(OutboundError):
    """A request that was not sent, or not finished. `code` is a `Code`; `argument` names the value at fault, if any."""

    def __init__(self, code: Code, message: str, *, argument: str | None = None) -> None:
        super().__init__(code, message)
        self.argument = argument
