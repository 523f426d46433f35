"""The policy under which tenants reach the outside: the engine's, with what the operator allows on top."""

from functools import lru_cache
from pathlib import Path

from django.conf import settings
from django.utils.translation import gettext as _

from engine import net
from tenants.scope import current_tenant_id

# What the operator of the service can do about a refusal.
REMEDIES = {
    net.Code.PORT_NOT_ALLOWED: "OUTBOUND_ALLOW_PORTS",
    net.Code.HOST_NOT_ALLOWED: "OUTBOUND_ALLOW_CIDRS",
    net.Code.ADDRESS_NOT_ALLOWED: "OUTBOUND_ALLOW_CIDRS",
}


def policy() -> net.Policy:
    return _policy(
        tuple(settings.OUTBOUND_ALLOW_CIDRS),
        tuple(settings.OUTBOUND_ALLOW_PORTS),
        settings.OUTBOUND_HTTPS_ONLY,
        settings.OUTBOUND_CA_FILE,
    )


def guard() -> net.Guard:
    """A guard that counts requests under the open scope's tenant."""
    return net.Guard(policy(), tenant=str(current_tenant_id()))


def url_fault(url: str) -> str | None:
    """Why nobody may call `url`, or None. Names are not looked up here: that is done, and judged, at each call."""
    try:
        policy().check_url(net.parse_url(url))
    except net.Refused as error:
        return reason(error)
    return None


def reason(error: net.Refused) -> str:
    """Why the guard refused, and which setting of the operator would allow it, if one would."""
    remedy = REMEDIES.get(net.Code(error.code))
    return (
        _("%(why)s; the operator can allow it (%(how)s)") % {"why": error.message, "how": remedy}
        if remedy
        else error.message
    )


def origin(url: str) -> str:
    """`scheme://host:port` of a URL that has no fault, in one spelling."""
    parsed = net.parse_url(url)
    return f"{parsed.scheme}://{parsed.host}:{parsed.port}"


@lru_cache(maxsize=8)
def _policy(cidrs: tuple[str, ...], ports: tuple[int, ...], https_only: bool, ca_file: str) -> net.Policy:
    return net.Policy.tenant(
        allow_cidrs=cidrs, allow_ports=ports, https_only=https_only, ca_file=Path(ca_file) if ca_file else None
    )
