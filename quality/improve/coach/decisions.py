"""What a person makes of the coach's items: accepted into a new version of the style, dismissed, or taken back.

All functions need an open tenant scope. There is no way here for a token: who asks the coach by API cannot accept.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from quality.improve import proposals
from quality.improve.groups import GroupKey, NoSuchGroup
from quality.models import ArtifactKind, CoachItem, CoachRun, Feedback, Proposal, ProposalState
from tenants import audit, styles
from tenants.masking import reading
from tenants.models import Style, StyleVersion, User
from tenants.styles import StyleText

HEADING = "## Guidance"
State, Kind = CoachItem.State, CoachItem.Kind


class ItemsDecided(Exception):
    """Somebody decided on some of these items before; `items` are those, as they are now."""

    def __init__(self, items: Sequence[CoachItem]) -> None:
        told = ", ".join(f"{item.position + 1} ({item.get_state_display().lower()})" for item in items)
        super().__init__(
            _("Decided meanwhile: item %(items)s. Nothing was changed; look at it again.") % {"items": told}
        )
        self.items = items


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """The style with its new version, and the proposals that were closed with it."""

    style: Style
    proposals: tuple[Proposal, ...]


def with_items(text: StyleText, items: Iterable[CoachItem]) -> StyleText:
    """The style's text with these items in it. Pure."""
    prompt, examples, skills = text.system_prompt, list(text.examples), list(text.skills)
    for item in items:
        match item.kind:
            case Kind.GUIDANCE:
                prompt = _with_line(prompt, item.text)
            case Kind.EXAMPLE:
                examples.append((item.user_text, item.assistant_text))
            case Kind.ATTACH_SKILL if item.text not in skills:
                skills.append(item.text)
            case Kind.DETACH_SKILL if item.text in skills:
                skills.remove(item.text)
    return StyleText(prompt, tuple(dict.fromkeys(examples)), tuple(skills))


def without_item(text: StyleText, item: CoachItem) -> StyleText:
    """The style's text without what this item brought. Pure; the same text where nothing of it is left."""
    match item.kind:
        case Kind.GUIDANCE:
            lines = text.system_prompt.split("\n")
            kept = [line for line in lines if line != f"- {item.text}"]
            if kept and kept[-1].strip() == HEADING:
                kept = "\n".join(kept[:-1]).rstrip().split("\n")
            return replace(text, system_prompt="\n".join(kept)) if len(kept) < len(lines) else text
        case Kind.EXAMPLE:
            pair = (item.user_text, item.assistant_text)
            return replace(text, examples=tuple(one for one in text.examples if one != pair))
        case Kind.ATTACH_SKILL:
            return replace(text, skills=tuple(name for name in text.skills if name != item.text))
    return text if item.text in text.skills else replace(text, skills=(*text.skills, item.text))


def style_of(run: CoachRun) -> tuple[Style, StyleText]:
    """The style as it is now, locked; raises ValidationError if it is gone."""
    style = Style.objects.select_for_update().filter(style_id=run.style_id).first()
    if style is None:
        raise ValidationError(_("The style %(style_id)s is gone.") % {"style_id": run.style_id})
    return style, styles.text_of(StyleVersion.objects.get(style=style, number=style.version))


@transaction.atomic
def accept(run: CoachRun, item_ids: Iterable[int], *, by: User) -> Accepted:
    """Take items into a new version of the style, and close the proposals of their groups with it.

    Raises ItemsDecided and ValidationError; then nothing was changed.
    """
    style, text = style_of(run)
    items = _open_items(run, item_ids)
    _refuse_masked(items)
    changed = with_items(text, items)
    if changed == text:
        raise ValidationError(_("The style says all of this already."))
    style = _saved(style, text, changed, by)
    _decide(items, State.ACCEPTED, by=by, style_version=style.version)
    closed = tuple(_closed(items, ref=_ref(style, style.version), by=by))
    _record("coach.accepted", run, items, by, version=style.version, proposals=[one.pk for one in closed])
    return Accepted(style=style, proposals=closed)


@transaction.atomic
def dismiss(run: CoachRun, item_ids: Iterable[int], *, by: User) -> None:
    """Set items aside. Raises ItemsDecided and ValidationError."""
    items = _open_items(run, item_ids)
    _decide(items, State.DISMISSED, by=by)
    _record("coach.dismissed", run, items, by)


def _refuse_masked(items: Iterable[CoachItem]) -> None:
    """A style holds what its readers see: neither marks of values that somebody may not see, nor those values for
    them."""
    reader = reading.current()
    if reader and any(reader.hides(text) for one in items for text in (one.text, one.user_text, one.assistant_text)):
        raise ValidationError(_("Something in it is masked for you. Somebody who may see it has to accept it."))


@reading.as_stored()  # found in the style by what it says
@transaction.atomic
def revoke(item: CoachItem, *, by: User) -> Style:
    """Take an accepted item out of the style again, as another version. With the last item of a version its proposals
    are pending again. Raises ItemsDecided and ValidationError."""
    style, text = style_of(item.run)
    item = CoachItem.objects.select_for_update().select_related("run").get(pk=item.pk)
    if item.state != State.ACCEPTED:
        raise ItemsDecided([item])
    changed = without_item(text, item)
    if changed == text:
        raise ValidationError(_("It is not in the style any more; somebody changed the style by hand."))
    style = _saved(style, text, changed, by)
    accepted_in = item.style_version
    _decide([item], State.REVOKED, by=by, style_version=accepted_in)
    left = CoachItem.objects.filter(run=item.run, style_version=accepted_in, state=State.ACCEPTED).exists()
    if not left and accepted_in is not None:
        _reopen(_ref(style, accepted_in), by=by)
    _record("coach.revoked", item.run, [item], by, version=style.version)
    return style


def _with_line(prompt: str, line: str) -> str:
    """The prompt with a line more in its last section, which is the guidance."""
    if f"- {line}" in prompt.split("\n"):
        return prompt
    if HEADING not in prompt.split("\n"):
        prompt = f"{prompt.rstrip()}\n\n{HEADING}".lstrip()
    return f"{prompt.rstrip()}\n- {line}"


def _open_items(run: CoachRun, item_ids: Iterable[int]) -> list[CoachItem]:
    items = list(CoachItem.objects.select_for_update().filter(run=run, pk__in=list(item_ids)).order_by("position"))
    if not items:
        raise ValidationError(_("Choose at least one item."))
    if decided := [item for item in items if item.state != State.OPEN]:
        raise ItemsDecided(decided)
    return items


def _saved(style: Style, before: StyleText, text: StyleText, by: User) -> Style:
    """The style with this text; never from some skills to none or back, for none means all tools."""
    if before.skills and not text.skills:
        raise ValidationError(
            _("No skill would be left, and a style without skills offers all tools. Attach one first.")
        )
    if text.skills and not before.skills:
        raise ValidationError(
            _("The style offers all tools now. With a first skill it would lose those of all others.")
        )
    return styles.save_style(
        style_id=style.style_id, name=style.name, text=text, is_default=style.is_default, actor=by, pk=style.pk
    )


def _decide(items: Iterable[CoachItem], state: str, *, by: User, style_version: int | None = None) -> None:
    for item in items:
        item.state, item.decided_by, item.decided_at = state, by, timezone.now()
        item.style_version = style_version
        item.save(update_fields=["state", "decided_by", "decided_at", "style_version"])


def _ref(style: Style, version: int) -> str:
    return f"{style.style_id}@{version}"


def _closed(items: Iterable[CoachItem], *, ref: str, by: User) -> Iterable[Proposal]:
    """Track and apply the groups that the items speak of."""
    notes: dict[GroupKey, str] = {}
    for item in items:
        for key in _groups_of(item):
            notes.setdefault(key, item.text or item.rationale)
    for key, note in sorted(notes.items(), key=lambda pair: tuple(vars(pair[0]).values())):
        try:
            tracked = proposals.track(key, by=by)
            yield proposals.apply(tracked.pk, kind=ArtifactKind.STYLE_UPDATE, ref=ref, note=note, by=by)
        except (NoSuchGroup, proposals.ProposalConflict):
            continue  # its feedback was taken back, or belongs to another decision


def _groups_of(item: CoachItem) -> set[GroupKey]:
    """What all labels that the item rests on have in common: one label of two faults is no reason to close both. Where
    they have nothing in common, the item is for all of them."""
    said = [
        {GroupKey(label=row.label, tool_name=row.tool_name, style_id=row.style_id, fault=fault) for fault in row.faults}
        for row in Feedback.objects.filter(pk__in=item.feedback_ids)
    ]
    return (set.intersection(*said) or set.union(*said)) if said else set()


def _reopen(ref: str, *, by: User) -> None:
    closed = Proposal.objects.filter(
        state=ProposalState.APPLIED, resolution_kind=ArtifactKind.STYLE_UPDATE, resolution_ref=ref
    )
    for proposal in closed:
        try:
            proposals.reopen(proposal.pk, by=by, reason=f"The change of {ref} was taken back.")
        except proposals.ProposalConflict:  # its group goes on in a newer proposal
            continue


def _record(action: str, run: CoachRun, items: Sequence[CoachItem], by: User, **detail: object) -> None:
    audit.record(
        action,
        object_type="coach_run",
        object_id=run.pk,
        actor=by,
        detail={"styleId": run.style_id, "items": [item.position + 1 for item in items], **detail},
    )
