"""The form of an HTTP tool, and the definition that is made of it."""

import json
from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from engine.strict_json import JsonError, read_json
from engine.tools.definitions import MAX_DESCRIPTION, HttpDefinition, definition_faults
from tenants import outbound

MAX_JSON = 100_000  # characters
METHODS = ("POST", "GET", "PUT", "PATCH", "DELETE")
START = '{"type": "object", "properties": {}, "required": []}'
CODE = {"spellcheck": "false", "class": "mono"}


class ToolForm(forms.Form):
    """The members of a definition, one by one. `item()` gives the definition, to be judged as a whole."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=64,
        help_text=gettext_lazy("The model calls it by this: letters, digits, - and _."),
    )
    description = forms.CharField(
        label=gettext_lazy("Description"),
        max_length=MAX_DESCRIPTION,
        help_text=gettext_lazy("The model chooses by it."),
        widget=forms.Textarea(attrs={"rows": 3}),
    )
    method = forms.ChoiceField(label=gettext_lazy("Method"), choices=[(method, method) for method in METHODS])
    url = forms.CharField(
        label="URL",
        max_length=4000,
        help_text=gettext_lazy(
            "Arguments may stand in the path and in query values: https://api.example.com/orders/{number}"
        ),
        widget=forms.TextInput(attrs={"spellcheck": "false", "class": "mono"}),
    )
    headers = forms.CharField(
        label=gettext_lazy("Headers"),
        required=False,
        max_length=20_000,
        help_text=gettext_lazy("One a line. Secrets by name: Authorization: Bearer {secret:SHOP_KEY}"),
        widget=forms.Textarea(attrs=CODE | {"rows": 3}),
    )
    parameters = forms.CharField(
        label=gettext_lazy("Parameters"),
        max_length=MAX_JSON,
        initial=START,
        help_text=gettext_lazy("JSON Schema of the arguments."),
        widget=forms.Textarea(attrs=CODE | {"rows": 12}),
    )
    mode = forms.ChoiceField(
        label=gettext_lazy("Calls run"),
        choices=[("auto", gettext_lazy("by themselves")), ("approve", gettext_lazy("when a person has approved them"))],
    )
    safety = forms.ChoiceField(
        label=gettext_lazy("Repeating a call"),
        choices=[
            ("safe", gettext_lazy("is safe: it changes nothing")),
            ("unsafe", gettext_lazy("is unsafe: it must not happen twice")),
        ],
        initial="unsafe",
    )
    follow_redirects = forms.BooleanField(label=gettext_lazy("Follow redirects (GET only)"), required=False)
    is_enabled = forms.BooleanField(label=gettext_lazy("Enabled"), required=False, initial=True)

    def clean_headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        for number, line in enumerate(self.cleaned_data["headers"].splitlines(), start=1):
            if line.strip():
                name, colon, value = line.partition(":")
                if not colon or not name.strip():
                    raise ValidationError(_("Line %(number)s is not of the form Name: value.") % {"number": number})
                headers[name.strip()] = value.strip()
        return headers

    def clean_parameters(self) -> Any:
        return read(self.cleaned_data["parameters"])

    def item(self) -> dict[str, Any]:
        cleaned = self.cleaned_data
        names = ("name", "description", "parameters", "url", "method", "headers", "mode", "safety", "follow_redirects")
        return {name: cleaned[name] for name in names if cleaned[name] not in ({}, False)}

    @classmethod
    def of(cls, definition: HttpDefinition, *, is_enabled: bool) -> "ToolForm":
        initial = {name: getattr(definition, name) for name in cls.base_fields if hasattr(definition, name)}
        initial["headers"] = "\n".join(f"{name}: {value}" for name, value in definition.headers.items())
        initial["parameters"] = pretty(definition.parameters)
        return cls(initial=initial | {"is_enabled": is_enabled})


class JsonForm(forms.Form):
    """A definition as its author writes it."""

    definition = forms.CharField(
        max_length=MAX_JSON, label=gettext_lazy("Definition"), widget=forms.Textarea(attrs=CODE | {"rows": 24})
    )
    is_enabled = forms.BooleanField(label=gettext_lazy("Enabled"), required=False, initial=True)

    def clean_definition(self) -> Any:
        return read(self.cleaned_data["definition"])

    def item(self) -> Any:
        return self.cleaned_data["definition"]


def faults_of(form: ToolForm | JsonForm) -> list[str]:
    """Everything that is wrong with a form now, for one who is still writing."""
    if not form.is_valid():
        return [
            f"{form.fields[name].label or name}: {' '.join(map(str, errors))}" for name, errors in form.errors.items()
        ]
    return [str(fault).removeprefix("[0].") for fault in definition_faults([form.item()], outbound.policy())]


def read(text: str) -> Any:
    try:
        return read_json(text)
    except JsonError as error:
        raise ValidationError(_("This is not JSON: %(why)s.") % {"why": error}) from error


def pretty(value: Mapping[str, Any] | Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)
