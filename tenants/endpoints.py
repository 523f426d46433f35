"""Model endpoints: kept, chosen for a turn, and made into a model that the engine can ask."""

import json
import math
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.formats import number_format
from django.utils.translation import gettext as _

from engine.limits import Price
from engine.net import Client, parse_url
from engine.providers.openai import OpenAIModel
from tenants import audit, outbound, secrets
from tenants.models import ApiToken, ModelEndpoint, Purpose, User
from tenants.versions import raise_version

OURS = frozenset(("model", "messages", "tools", "tool_choice", "stream", "stream_options", "n"))
MAX_PARAMETERS = 10_000  # characters
MAX_SOURCES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointData:
    """What a person says of an endpoint. `key` None leaves the key as it is, "" takes it away."""

    label: str
    base_url: str
    model: str
    key: str | None = field(default=None, repr=False)
    parameters: dict[str, Any] = field(default_factory=dict)
    price_prompt: float = 0.0
    price_completion: float = 0.0
    sources: tuple[str, ...] = ()
    is_enabled: bool = True
    is_stand_in: bool = False
    repairs_text_calls: bool = True
    asks_again_when_empty: bool = True
    checks_arguments: bool = True


@dataclass(frozen=True, slots=True)
class ChosenModel:
    """An endpoint as plain values, good outside of any scope."""

    endpoint_id: int
    label: str
    base_url: str
    name: str
    parameters: dict[str, Any]
    price: Price
    has_key: bool
    is_stand_in: bool

    def built(self, client: Client, key: str | None) -> OpenAIModel:
        """The model, asked through `client` (from the outbound guard, for this base URL)."""
        timeout_s = settings.MODEL_TIMEOUT_S
        return OpenAIModel(self.base_url, self.name, client, key=key, parameters=self.parameters, timeout_s=timeout_s)


@transaction.atomic
def save_endpoint(
    data: EndpointData, *, actor: User | None, token: ApiToken | None = None, pk: int | None = None
) -> ModelEndpoint:
    """Make an endpoint, or change the one with this `pk`. Raises ValidationError, ModelEndpoint.DoesNotExist.

    A key stays with the host that it was set for: with another one it is dropped, and has to be given again.
    """
    endpoint = ModelEndpoint() if pk is None else ModelEndpoint.objects.select_for_update().get(pk=pk)
    old_origin = outbound.origin(endpoint.base_url) if pk is not None else ""
    for name in (
        "label", "model", "parameters", "price_prompt", "price_completion", "is_enabled", "is_stand_in",
        "repairs_text_calls", "asks_again_when_empty", "checks_arguments",
    ):  # fmt: skip
        setattr(endpoint, name, getattr(data, name))
    endpoint.base_url = data.base_url.strip().rstrip("/")
    endpoint.sources = list(dict.fromkeys(source.strip() for source in data.sources if source.strip()))
    _check(endpoint)
    endpoint.full_clean(exclude=["key", "parameters", "sources"])
    endpoint.save()
    _set_key(endpoint, data.key, actor, token, is_moved=pk is not None and old_origin != outbound.origin(data.base_url))
    raise_version()
    audit.record(
        "model.created" if pk is None else "model.changed",
        object_type="model_endpoint",
        object_id=endpoint.pk,
        actor=actor,
        token=token,
        after={"label": endpoint.label, "base_url": endpoint.base_url, "model": endpoint.model},
        detail={"label": endpoint.label, "model": endpoint.model},
    )
    return endpoint


@transaction.atomic
def delete_endpoint(*, endpoint: ModelEndpoint, actor: User, token: ApiToken | None = None) -> None:
    audit.record(
        "model.deleted",
        object_type="model_endpoint",
        object_id=endpoint.pk,
        actor=actor,
        token=token,
        detail={"label": endpoint.label},
    )
    key = endpoint.key
    endpoint.delete()
    if key is not None:
        key.delete()
    raise_version()


def choose(*, label: str = "", source: str = "") -> ChosenModel | None:
    """The enabled endpoint for a turn: the one with this label; else the one that names this source; else the first
    that names none. None if there is no such one."""
    enabled = list(ModelEndpoint.objects.filter(is_enabled=True).order_by("pk"))
    if label:
        found = [one for one in enabled if one.label == label]
    else:
        found = [one for one in enabled if source and source in one.sources] or [
            one for one in enabled if not one.sources
        ]
    return chosen(found[0]) if found else None


def chosen(endpoint: ModelEndpoint) -> ChosenModel:
    return ChosenModel(
        endpoint_id=endpoint.pk,
        label=endpoint.label,
        base_url=endpoint.base_url,
        name=endpoint.model,
        parameters=dict(endpoint.parameters),
        price=Price(endpoint.price_prompt, endpoint.price_completion),
        has_key=endpoint.key_id is not None,
        is_stand_in=endpoint.is_stand_in,
    )


def read_key(endpoint_id: int, *, run: str) -> str | None:
    """The endpoint's key for one turn, which is audited; None where it has none. Raises envelope.SecretInvalid."""
    endpoint = ModelEndpoint.objects.select_related("key").filter(pk=endpoint_id).first()
    if endpoint is None or endpoint.key is None:
        return None
    return secrets.read(endpoint.key, used_by=f"model {endpoint.label}", run=run)


def models_to_ask() -> list[ModelEndpoint]:
    """Enabled endpoints with a model behind them, the oldest first; the stand-in's rules neither write nor judge."""
    return list(ModelEndpoint.objects.filter(is_enabled=True, is_stand_in=False).order_by("pk"))


def has_enabled() -> bool:
    return ModelEndpoint.objects.filter(is_enabled=True).exists()


def _set_key(
    endpoint: ModelEndpoint, key: str | None, actor: User | None, token: ApiToken | None, *, is_moved: bool
) -> None:
    if key:
        endpoint.key = secrets.set_secret(
            name=f"model_key:{endpoint.pk}", value=key, actor=actor, token=token, purpose=Purpose.MODEL
        )
        endpoint.save(update_fields=["key"])
    elif endpoint.key is not None and (key == "" or is_moved):
        endpoint.key.delete()
        endpoint.key = None


def _check(endpoint: ModelEndpoint) -> None:
    faults: dict[str, Any] = {}
    if reason := outbound.url_fault(endpoint.base_url):
        faults["base_url"] = _("Nobody may call this address: %(why)s.") % {"why": reason}
    elif parse_url(endpoint.base_url).target.count("?"):
        faults["base_url"] = _("A base URL has no query.")
    if not isinstance(endpoint.parameters, dict):
        faults["parameters"] = _("Parameters are a JSON object.")
    elif taken := sorted(OURS & endpoint.parameters.keys()):
        faults["parameters"] = _("%(names)s: set by us on each request.") % {"names": ", ".join(taken)}
    elif len(json.dumps(endpoint.parameters)) > MAX_PARAMETERS:
        faults["parameters"] = _("More than %(limit)s characters.") % {"limit": number_format(MAX_PARAMETERS)}
    for name in ("price_prompt", "price_completion"):
        if not math.isfinite(getattr(endpoint, name)):
            faults[name] = _("A price is a number.")
    if len(endpoint.sources) > MAX_SOURCES:
        faults["sources"] = _("At most %(limit)s sources.") % {"limit": MAX_SOURCES}
    others = ModelEndpoint.objects.exclude(pk=endpoint.pk).filter(sources__overlap=endpoint.sources)
    if endpoint.sources and (other := others.first()):
        twice = ", ".join(sorted(set(other.sources) & set(endpoint.sources)))
        told = _("%(sources)s: answered by %(model)s already.")
        faults["sources"] = told % {"sources": twice, "model": other.label}
    if faults:
        raise ValidationError(faults)
