"""What one turn needs of its tenant's settings: a model, tools, a system prompt, limits, secrets.

`settings.TURN_SETUP` names the function that gives it: `(Asked) -> Setup`. It is called once for each claim of a turn,
inside the tenant's scope and in a thread, so it may query; it opens no connection to the outside.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string

from engine.limits import Limits
from engine.net import Guard, Policy
from engine.redaction import Redactor
from engine.tools import SecretSource, Tool


class SetupRefused(Exception):
    """The turn cannot run as its tenant is set up. `code` becomes its end reason; the message says what to do."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Asked:
    """Which turn it is for. `model_label` and `style_id` are empty where the tenant's defaults apply."""

    tenant_id: int
    turn_id: int
    conversation_id: str
    model_label: str
    style_id: str


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model server: `base_url` ends before `/chat/completions`."""

    base_url: str
    model: str
    key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float = field(default_factory=lambda: settings.MODEL_TIMEOUT_S)


@dataclass(frozen=True, slots=True)
class Setup:
    """`secrets` gives a secret by name; `known_secrets` are those values that must be taken out of all that is kept."""

    endpoint: Endpoint
    guard: Guard
    tools: Sequence[Tool] = ()
    system: str | None = None
    limits: Limits = field(default_factory=Limits)
    secrets: SecretSource = lambda _name: None
    known_secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    style_id: str = ""
    prompt_version: str = ""

    @property
    def redactor(self) -> Redactor:
        return Redactor(self.known_secrets)


type SetupSource = Callable[[Asked], Setup]


@cache
def setup_source() -> SetupSource:
    source: SetupSource = import_string(settings.TURN_SETUP)
    return source


def from_environment(asked: Asked) -> Setup:
    """One model for all tenants, from MODEL_URL, MODEL_NAME and MODEL_KEY; no tools."""
    base_url = os.environ.get("MODEL_URL", "")
    if not base_url:
        raise SetupRefused("no_model", "No model is set up. Set MODEL_URL and MODEL_NAME, or add a model endpoint.")
    endpoint = Endpoint(base_url, os.environ.get("MODEL_NAME", "default"), os.environ.get("MODEL_KEY") or None)
    return Setup(endpoint, Guard(Policy.local(), tenant=str(asked.tenant_id)))
