"""A form made from a tool's JSON Schema, to try the tool by hand or to edit the arguments of a call."""

import json
from collections.abc import Mapping
from typing import Any, cast

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from engine.strict_json import JsonError, read_json
from quality.ingest.jsontext import escape_surrogates, storable
from quality.review.arguments import type_name
from tenants.masking.masker import MARK

MAX_FIELDS = 50


def argument_form(
    parameters: Mapping[str, Any],
    data: Mapping[str, str] | None = None,
    *,
    values: Mapping[str, Any] | None = None,
    auto_id: str = "id_%s",
) -> "ArgumentForm":
    """The form of a schema; `values` are arguments to begin with, `auto_id` tells several forms of a page apart."""
    return ArgumentForm(parameters, data, values=values, auto_id=auto_id)


class ArgumentForm(forms.Form):
    """One field for each argument that the schema lists; what has no plain field of its own is written as JSON.

    `arguments()` gives those that were filled in. What the schema makes of them is for the tool to say.
    """

    def __init__(
        self,
        parameters: Mapping[str, Any],
        data: Mapping[str, str] | None = None,
        *,
        values: Mapping[str, Any] | None = None,
        auto_id: str = "id_%s",
    ) -> None:
        super().__init__(data, auto_id=auto_id)
        properties = parameters.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        required = parameters.get("required")
        required = required if isinstance(required, list) else []
        self.names: dict[str, str] = {}  # of the arguments, by field
        for number, (name, schema) in enumerate(list(properties.items())[:MAX_FIELDS]):
            field = f"argument-{number}"  # names of arguments may hold anything
            self.names[field] = name
            made = _field(name, schema if isinstance(schema, Mapping) else {}, name in required)
            shown = (values or {}).get(name) if data is None else data.get(field)
            self.fields[field] = _of_mark(made) if _is_mark(shown) else made
        self.fields["more"] = forms.CharField(
            label=_("Other arguments"),
            required=False,
            help_text=_("A JSON object."),
            widget=forms.Textarea(attrs={"rows": 2, "class": "mono", "spellcheck": "false", "placeholder": "{}"}),
        )
        self._begin_with(values or {})

    def _begin_with(self, values: Mapping[str, Any]) -> None:
        """Put these arguments into their fields; what a field cannot hold as it is goes into the JSON of the others."""
        others = dict(values)
        for field, name in self.names.items():
            if name in others and (shown := _shown(self.fields[field], others[name])) is not None:
                self.fields[field].initial = shown
                if "\n" in shown:
                    self.fields[field].widget = forms.Textarea(attrs={"rows": 3})
                del others[name]
        if others:
            self.fields["more"].initial = _as_json(others)

    def clean_more(self) -> dict[str, Any]:
        value = _json(self.cleaned_data["more"].strip() or "{}")
        if not isinstance(value, dict):
            raise ValidationError(_("A JSON object is needed."))
        return value

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        for field in self.names:
            if isinstance(self.fields[field], JsonField) and cleaned.get(field):
                try:
                    cleaned[field] = _json(cleaned[field])
                except ValidationError as error:
                    self.add_error(field, error)
        return cleaned

    def arguments(self) -> dict[str, Any]:
        given = {
            name: _as_typed(self.cleaned_data[field])
            for field, name in self.names.items()
            if self.data.get(field, "") not in ("", None)
        }
        return self.cleaned_data["more"] | given


def _as_typed(value: Any) -> Any:
    return value.replace("\r\n", "\n") if isinstance(value, str) else value  # forms send line ends of their own


class JsonField(forms.CharField):
    """Text that is read as JSON."""


class ChoiceOfJson(forms.TypedChoiceField):
    """One of a schema's values, each spelled as JSON."""


def _field(name: str, schema: Mapping[str, Any], is_required: bool) -> forms.Field:
    told: dict[str, Any] = {
        "label": name,
        "required": is_required,
        "help_text": " · ".join(filter(None, (type_name(schema), str(schema.get("description") or "")))),
    }
    if isinstance(schema.get("enum"), list):
        options = [(json.dumps(value), str(value)) for value in schema["enum"][:200]]
        return ChoiceOfJson(choices=[("", "–"), *options], coerce=json.loads, empty_value=None, **told)
    match schema.get("type"):
        case "string":
            long = (schema.get("maxLength") or 0) > 200
            return forms.CharField(strip=False, widget=forms.Textarea(attrs={"rows": 3}) if long else None, **told)
        case "integer":
            return forms.IntegerField(**told)
        case "number":
            return forms.FloatField(**told)
        case "boolean":
            return ChoiceOfJson(
                choices=[("", "–"), ("true", "true"), ("false", "false")], coerce=json.loads, empty_value=None, **told
            )
    attrs = {"rows": 2, "class": "mono", "spellcheck": "false"}
    return JsonField(widget=forms.Textarea(attrs=attrs), **told)


def _is_mark(value: Any) -> bool:
    return isinstance(value, str) and MARK.fullmatch(value) is not None


def _of_mark(field: forms.Field) -> forms.Field:
    """A field for a value that whoever fills it in may not see: its mark goes back as it came."""
    if not isinstance(field, ChoiceOfJson | forms.IntegerField):
        return field
    return forms.CharField(label=field.label, required=field.required, help_text=field.help_text, strip=False)


def _shown(field: forms.Field, value: Any) -> str | None:
    """How a field spells a value, so that it reads it back as the same; None if it cannot."""
    match field:
        case JsonField():
            return _as_json(value)
        case ChoiceOfJson():
            spelled = json.dumps(value)
            return spelled if any(spelled == choice for choice, _ in cast(Any, field).choices) else None
        case forms.IntegerField():  # a FloatField is one, too
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            fits = is_number and (isinstance(value, int) or isinstance(field, forms.FloatField))
            return repr(value) if fits else None
        case _:
            return value if isinstance(value, str) and value and value == storable(value) else None


def _as_json(value: Any) -> str:
    return escape_surrogates(json.dumps(value, ensure_ascii=False))


def _json(text: str) -> Any:
    try:
        return read_json(text)
    except JsonError as error:
        raise ValidationError(_("This is not JSON: %(why)s.") % {"why": error}) from error
