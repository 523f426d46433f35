"""Active definitions: HTTP tools from `LLM_TOOLS_FILE`, or those that a tenant sent in their place until the next
restart of the service. They stand beside the tools that a tenant keeps; where both have a name, the kept one counts.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.utils.translation import gettext as _

from engine.tools.definitions import DefinitionFault, DefinitionsError, HttpDefinition, read_definitions
from tenants import audit, deployment, outbound, shared
from tenants.endpoints import has_enabled
from tenants.models import ApiToken, User
from tenants.scope import current_tenant_id
from tenants.versions import raise_version

LIFE_S = 400 * 24 * 3600  # longer than a deployment lives
HIDDEN = "(hidden)"
MAX_TOOLS = 200  # HTTP tools of a tenant, sent or kept: processes keep them, and all stand in each request


class NotAvailable(Exception):
    """Definitions cannot be taken now: nothing would use them."""


@dataclass(frozen=True, slots=True)
class Active:
    """`source` is `file`, `request` or `none`."""

    source: str
    definitions: tuple[HttpDefinition, ...] = ()

    def to_json(self) -> dict[str, Any]:
        shown = [shown_definition(definition) for definition in self.definitions]
        return {"ok": True, "count": len(shown), "source": self.source, "tools": shown}


def active() -> Active:
    """What is in use for the open scope's tenant."""
    sent = shared.read(_key(deployment.current())) if settings.LLM_TOOLS_REPLACEABLE else None
    if sent is not None:
        return Active("request", _from_json(sent))
    from_file = file_definitions()
    return Active("file", from_file) if from_file else Active("none")


def replace(body: bytes, *, actor: User, token: ApiToken | None = None) -> Active:
    """Put these definitions in the place of the file's, from the next turn on in every process.

    Raises DefinitionsError with every fault, NotAvailable where no turn could use them.
    """
    definitions = tuple(read_definitions(body, outbound.policy()))
    if len(definitions) > MAX_TOOLS:
        raise DefinitionsError([DefinitionFault(None, "", f"holds more than {MAX_TOOLS} definitions")])
    if not settings.LLM_TOOLS_REPLACEABLE:
        raise NotAvailable(_("Tool definitions are switched off: the operator set LLM_TOOLS_ENABLED to false."))
    if not has_enabled():
        raise NotAvailable(_("There is no enabled model that could call a tool. Add one under Models."))
    text = json.dumps([definition.to_json() for definition in definitions], ensure_ascii=False)
    with transaction.atomic():
        _keep(text)
        _changed("tools.replaced", actor, token, len(definitions))
    return Active("request", definitions)


def restore(*, actor: User, token: ApiToken | None = None) -> Active:
    """Bring the file's definitions back. Raises NotAvailable."""
    with transaction.atomic():
        _keep(None)
        _changed("tools.restored", actor, token, len(file_definitions()))
    return active()


def file_definitions() -> tuple[HttpDefinition, ...]:
    """The definitions of `LLM_TOOLS_FILE`, read once by each process. Raises ImproperlyConfigured for a bad file."""
    return _read_file(settings.LLM_TOOLS_FILE) if settings.LLM_TOOLS_ENABLED else ()


def shown_definition(definition: HttpDefinition) -> dict[str, Any]:
    """A definition for people: header values that are written out stay hidden, for they may be keys."""
    item = definition.to_json()
    if headers := item.get("headers"):
        item["headers"] = shown_headers(headers)
    return item


def shown_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value if "{secret:" in value else HIDDEN for name, value in headers.items()}


@lru_cache(maxsize=2)
def _read_file(path: str) -> tuple[HttpDefinition, ...]:
    if not path or not Path(path).is_file():
        return ()
    try:
        return tuple(read_definitions(Path(path).read_bytes(), outbound.policy()))
    except DefinitionsError as error:
        raise ImproperlyConfigured(f"LLM_TOOLS_FILE: {path} cannot be used:\n{error}") from error


@lru_cache(maxsize=64)
def _from_json(text: str) -> tuple[HttpDefinition, ...]:
    items: Sequence[Mapping[str, Any]] = json.loads(text)
    return tuple(HttpDefinition.from_json(item) for item in items)


def _keep(text: str | None) -> None:
    try:
        shared.write(_key(deployment.confirmed()), text, LIFE_S)
    except shared.CacheAway as error:
        raise NotAvailable(str(error)) from error


def _key(deployment_id: str) -> str:
    return f"tools:{deployment_id}:{current_tenant_id()}"


def _changed(action: str, actor: User, token: ApiToken | None, count: int) -> None:
    raise_version()
    audit.record(action, object_type="active_tools", object_id="", actor=actor, token=token, detail={"count": count})
