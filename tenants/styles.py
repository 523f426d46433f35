"""Styles: what an agent is told before it is asked, in versions, with the skills that it has."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.formats import number_format
from django.utils.translation import gettext as _

from tenants import audit
from tenants.models import ApiToken, Skill, Style, StyleVersion, User
from tenants.versions import raise_version

MAX_PROMPT = 100_000  # characters
MAX_EXAMPLES = 50
MAX_STYLES = 100


@dataclass(frozen=True, slots=True)
class StyleText:
    """The versioned part of a style. `examples` are pairs of what a user says and what the agent answers."""

    system_prompt: str = ""
    examples: tuple[tuple[str, str], ...] = ()
    skills: tuple[str, ...] = ()

    def system(self) -> str:
        """The system message: the prompt, then the examples."""
        parts = [self.system_prompt.strip()]
        if self.examples:
            shown = "\n\n".join(f"User: {user}\nAssistant: {assistant}" for user, assistant in self.examples)
            parts.append(f"Examples of good answers:\n\n{shown}")
        return "\n\n".join(filter(None, parts))

    def to_text(self) -> str:
        """All of it as lines, to be compared."""
        examples = "\n".join(f"User: {user}\nAssistant: {assistant}\n" for user, assistant in self.examples)
        return f"{self.system_prompt}\n\n{examples}\nSkills: {', '.join(self.skills) or 'all tools'}"


@dataclass(frozen=True, slots=True)
class ActiveStyle:
    """A style as turns use it. `tools` are the names it may offer; None: all."""

    style_id: str
    version: int
    system: str
    tools: frozenset[str] | None


def text_of(version: StyleVersion) -> StyleText:
    examples = tuple((one["user"], one["assistant"]) for one in version.examples)
    return StyleText(version.system_prompt, examples, tuple(version.skills))


@transaction.atomic
def save_style(
    *,
    style_id: str,
    name: str,
    text: StyleText,
    is_default: bool = False,
    actor: User | None,
    token: ApiToken | None = None,
    pk: int | None = None,
) -> Style:
    """Make a style, or give the one with this `pk` a new version (none if nothing of its text changed).

    Raises ValidationError, Style.DoesNotExist.
    """
    _check(text)
    if pk is None and Style.objects.count() >= MAX_STYLES:
        raise ValidationError(_("A tenant keeps %(limit)s styles at most.") % {"limit": number_format(MAX_STYLES)})
    style = Style() if pk is None else Style.objects.select_for_update().get(pk=pk)
    style.style_id, style.name, style.is_default = style_id, name, is_default
    if is_default:
        Style.objects.exclude(pk=style.pk).filter(is_default=True).update(is_default=False)
    newest = StyleVersion.objects.filter(style=style, number=style.version).first() if pk is not None else None
    is_new = newest is None or text_of(newest) != text
    style.version += is_new
    style.full_clean()
    style.save()
    if is_new:
        StyleVersion.objects.create(
            style=style,
            number=style.version,
            system_prompt=text.system_prompt,
            examples=[{"user": user, "assistant": assistant} for user, assistant in text.examples],
            skills=list(text.skills),
            by=actor,
        )
    raise_version()
    audit.record(
        "style.created" if pk is None else "style.changed",
        object_type="style",
        object_id=style.pk,
        actor=actor,
        token=token,
        after={"text": text.to_text(), "is_default": is_default},
        detail={"styleId": style_id, "version": style.version},
    )
    return style


@transaction.atomic
def restore_version(*, style: Style, number: int, actor: User, token: ApiToken | None = None) -> Style:
    """Make an older version the newest one. Raises StyleVersion.DoesNotExist, ValidationError."""
    text = text_of(StyleVersion.objects.get(style=style, number=number))
    return save_style(
        style_id=style.style_id,
        name=style.name,
        text=text,
        is_default=style.is_default,
        actor=actor,
        token=token,
        pk=style.pk,
    )


@transaction.atomic
def delete_style(*, style: Style, actor: User, token: ApiToken | None = None) -> None:
    audit.record(
        "style.deleted", object_type="style", object_id=style.pk, actor=actor, token=token,
        detail={"styleId": style.style_id},
    )  # fmt: skip
    style.delete()
    raise_version()


@transaction.atomic
def save_skill(
    *,
    name: str,
    description: str,
    tools: Iterable[str],
    actor: User,
    token: ApiToken | None = None,
    pk: int | None = None,
) -> Skill:
    """Make a skill or change the one with this `pk`; its name stays, for versions of styles go by it."""
    skill = Skill(name=name) if pk is None else Skill.objects.select_for_update().get(pk=pk)
    skill.description, skill.tools = description, sorted(set(tools))
    skill.full_clean(exclude=["tools"])
    skill.save()
    raise_version()
    audit.record(
        "skill.saved", object_type="skill", object_id=skill.pk, actor=actor, token=token,
        detail={"name": skill.name, "tools": skill.tools},
    )  # fmt: skip
    return skill


@transaction.atomic
def delete_skill(*, skill: Skill, actor: User, token: ApiToken | None = None) -> None:
    """Raises ValidationError while a style has it."""
    for style in Style.objects.all():
        if StyleVersion.objects.filter(style=style, number=style.version, skills__contains=[skill.name]).exists():
            told = _("Style %(style)s has this skill; take it out there first.")
            raise ValidationError(told % {"style": style.style_id})
    audit.record(
        "skill.deleted", object_type="skill", object_id=skill.pk, actor=actor, token=token, detail={"name": skill.name}
    )
    skill.delete()
    raise_version()


def active_styles() -> tuple[list[ActiveStyle], str]:
    """The newest version of each style of the open scope's tenant, and the id of the default one ("": none)."""
    skills = {skill.name: skill.tools for skill in Skill.objects.all()}
    styles = {style.pk: style for style in Style.objects.all()}
    newest: Sequence[StyleVersion] = [
        version
        for version in StyleVersion.objects.filter(style__in=styles)
        if version.number == styles[version.style_id].version
    ]
    found = []
    for version in newest:
        text, style = text_of(version), styles[version.style_id]
        names = frozenset(tool for name in text.skills for tool in skills.get(name, ())) if text.skills else None
        found.append(ActiveStyle(style.style_id, version.number, text.system(), names))
    return found, next((style.style_id for style in styles.values() if style.is_default), "")


def _check(text: StyleText) -> None:
    faults: dict[str, str] = {}
    if len(text.system_prompt) > MAX_PROMPT:
        faults["system_prompt"] = _("At most %(limit)s characters.") % {"limit": number_format(MAX_PROMPT)}
    if "\0" in text.system_prompt or any("\0" in part for pair in text.examples for part in pair):
        faults["system_prompt"] = _("There is a NUL character in it.")
    if len(text.examples) > MAX_EXAMPLES or sum(len(a) + len(b) for a, b in text.examples) > MAX_PROMPT:
        told = _("At most %(limit)s examples of %(characters)s characters together.")
        faults["examples"] = told % {"limit": number_format(MAX_EXAMPLES), "characters": number_format(MAX_PROMPT)}
    known = set(Skill.objects.filter(name__in=text.skills).values_list("name", flat=True))
    if unknown := sorted(set(text.skills) - known):
        faults["skills"] = _("There is no skill %(names)s.") % {"names": ", ".join(unknown)}
    if faults:
        raise ValidationError({name: [reason] for name, reason in faults.items()})
