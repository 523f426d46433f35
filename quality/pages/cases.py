"""Regression cases: the list, one case with its history, and making and changing one."""

from dataclasses import dataclass
from typing import Any, cast

import msgspec
from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from quality import calls
from quality.calls import BadCursor
from quality.filters import LabelsField, QueryForm
from quality.improve import cases
from quality.improve.case_import import MAX_TOTAL_BYTES, ImportRefused
from quality.improve.cases import CaseConflict, CaseFilter, Draft, ImportReport, NoSuchCase
from quality.improve.proposals import ProposalConflict
from quality.models import Case, CaseStatus, Feedback, Label, Proposal
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.conditions import Words, chips, conditions
from quality.pages.diff import diff
from quality.pages.expectation_editor import Editor
from quality.pages.render import render_page
from quality.pages.uploads import too_large
from quality.review import jsonview
from quality.review.blind import visible
from quality.review.conversation import read_conversation
from quality.review.offered import offered_tools
from tenants.models import Role, User

WORDS = {
    "status": gettext_lazy("status"),
    "label": gettext_lazy("label"),
    "tool": gettext_lazy("tool"),
    "tag": gettext_lazy("tag"),
    "proposal": gettext_lazy("proposal"),
    "q": gettext_lazy("text"),
}
STATUSES = {**dict(CaseStatus.choices), "all": gettext_lazy("Active and archived")}
SHOWN: Words = {"status": STATUSES, "label": dict(Label.choices)}
MAX_VERSIONS = 30


class CaseListForm(QueryForm):
    """The filter with the place in the list. Archived cases are shown when they are asked for."""

    status = forms.ChoiceField(required=False, choices=list(STATUSES.items()))
    labels = LabelsField(required=False, unlabelled=False)
    tool = forms.CharField(required=False, max_length=512)
    tag = forms.CharField(required=False, max_length=200)
    proposal = forms.IntegerField(required=False, min_value=1)
    q = forms.CharField(required=False, max_length=200)
    cursor = forms.CharField(required=False, max_length=2_000)

    @property
    def wanted(self) -> CaseFilter:
        data = self.cleaned_data
        status = data["status"] or CaseStatus.ACTIVE
        return CaseFilter(
            statuses=() if status == "all" else (status,),
            labels=data["labels"],
            tool=data["tool"],
            tag=data["tag"],
            proposal_id=data["proposal"],
            query=data["q"],
        )


class TextForm(forms.Form):
    """What of a case is not its expectation."""

    behavior = forms.CharField(
        label=gettext_lazy("Expected behaviour, for people"),
        widget=forms.Textarea(attrs={"rows": 2}),
        max_length=10_000,
    )
    tags = forms.CharField(
        label=gettext_lazy("Tags"),
        required=False,
        max_length=2_000,
        help_text=gettext_lazy("Words, separated by commas."),
    )
    note = forms.CharField(label=gettext_lazy("Why it is changed"), required=False, max_length=2_000)

    def clean_behavior(self) -> str:
        return str(self.cleaned_data["behavior"]).replace("\r\n", "\n")  # browsers send line ends of their own

    def clean_tags(self) -> list[str]:
        return [tag.strip() for tag in self.cleaned_data["tags"].split(",") if tag.strip()]


@require_GET
@tenant_view()
def case_list(request: TenantRequest) -> HttpResponse:
    form = CaseListForm(request.GET)
    query = conditions(request.GET, WORDS)
    context: dict[str, Any] = {
        "form": form,
        "unknown": form.unknown(),
        "faults": form.faults(),
        "query": query.urlencode(),
        "values": {name: query.get(name, "") for name in WORDS},
        "chips": chips(query, WORDS, SHOWN),
        "labels": Label.choices,
        "statuses": STATUSES.items(),
        "tools": calls.tool_names(),
        "page": None,
        "has_any": Case.objects.exists(),
    }
    if not context["faults"]:
        try:
            context["page"] = cases.find(form.wanted, cursor=form.cleaned_data["cursor"] or None)
        except BadCursor as error:
            context["faults"] = [{"path": "cursor", "message": str(error)}]
    return render_page(cast(HttpRequest, request), "quality/cases.html", context, partial="list")


@require_http_methods(["GET", "POST"])
@tenant_view(Role.OPERATOR)
def case_import(request: TenantRequest) -> HttpResponse:
    """Take in an export of cases, and say what became of each line that was not simply stored."""
    report: ImportReport | None = None
    faults: list[str] = []
    if request.method == "POST":
        report, faults = _imported(request)
    context = {"report": report, "faults": faults, "max_bytes": MAX_TOTAL_BYTES}
    return render(cast(HttpRequest, request), "quality/case_import.html", context, status=400 if faults else 200)


def _imported(request: TenantRequest) -> tuple[ImportReport | None, list[str]]:
    upload: UploadedFile | None = request.FILES.get("file")
    if too_large(request) or (upload and (upload.size or 0) > MAX_TOTAL_BYTES):
        told = _("The file is larger than %(limit)s MiB. Export the cases in parts.")
        return None, [told % {"limit": MAX_TOTAL_BYTES // 1024**2}]
    if upload is None:
        return None, [_("Choose a file: an export of cases, as JSON lines.")]
    try:
        return cases.import_cases(upload, by=request.user), []
    except ImportRefused as refused:
        fault = refused.fault
        told = _("Line %(line)s: %(why)s Nothing of the file was taken.")
        return None, [told % {"line": fault.line, "why": fault.message}]


# Making one


@require_http_methods(["GET", "POST"])
@tenant_view(Role.OPERATOR)
def case_new(request: TenantRequest) -> HttpResponse:
    """A case of a label, as its correction proposes it; saved after the reviewer has seen it."""
    data = request.POST if request.method == "POST" else request.GET
    feedback = _feedback(data.get("feedback", ""), request.user)
    proposal = _proposal(data.get("proposal", ""))
    draft = cases.draft_from(feedback, proposal=proposal)
    if request.method == "GET":
        editor, text = Editor.of(draft, draft.expectation or ""), TextForm(initial={"behavior": draft.behavior})
        return _Making(request, feedback, proposal, draft, editor, text).page()
    making = _Making(request, feedback, proposal, draft, Editor.sent(draft, request.POST), TextForm(request.POST))
    if "do" in request.POST:
        return _edited(request, making.editor) or making.page()
    return making.saved()


@dataclass(frozen=True)
class _Making:
    """A case on its way from a label."""

    request: TenantRequest
    feedback: Feedback
    proposal: Proposal | None
    draft: Draft
    editor: Editor
    text: TextForm

    def page(self, *, unsure: bool = False, status: int = 200) -> HttpResponse:
        context = _evidence(self.draft) | {
            "editor": self.editor,
            "editor_url": self.request.path,
            "text": self.text,
            "unsure": unsure,
            "feedback": self.feedback,
            "proposal": self.proposal,
            "draft": self.draft,
            "notes": self.draft.notes,
            "same": cases.same_as(self.draft),
        }
        return render(cast(HttpRequest, self.request), "quality/case_new.html", context, status=status)

    def saved(self) -> HttpResponse:
        if not self.text.is_valid() or self.editor.faults:
            return self.page(status=400)
        if self.editor.warnings and "anyway" not in self.request.POST:
            return self.page(unsure=True)
        try:
            case = cases.case_from_feedback(
                self.feedback,
                proposal=self.proposal,
                expectation=self.editor.text,
                behavior=self.text.cleaned_data["behavior"],
                tags=self.text.cleaned_data["tags"],
                by=self.request.user,
            )
        except ValidationError as error:
            self.text.add_error(None, ValidationError(error.messages))
            return self.page(status=400)
        except ProposalConflict as conflict:
            self.text.add_error(None, ValidationError(str(conflict)))
            return self.page(status=409)
        told = _("%(ref)s is saved.") % {"ref": case.ref}
        if self.proposal:
            told = _("%(ref)s is saved. Proposal %(number)s is applied.")
            told %= {"ref": case.ref, "number": self.proposal.pk}
        messages.success(self.request, told)
        return redirect("case-detail", slug=self.request.tenant.slug, number=case.number)


def _feedback(pk: str, user: User) -> Feedback:
    found = visible(Feedback.objects.filter(pk=int(pk)), user).first() if pk.isdecimal() and len(pk) < 19 else None
    if found is None:
        raise Http404(_("There is no such label, or it was taken back."))
    return found


def _proposal(pk: str) -> Proposal | None:
    if not pk:
        return None
    found = Proposal.objects.filter(pk=int(pk)).first() if pk.isdecimal() and len(pk) < 19 else None
    if found is None:
        raise Http404(_("There is no such proposal."))
    return found


def _edited(request: TenantRequest, editor: Editor) -> HttpResponse | None:
    """The part that htmx asked for: the verdict alone, or the editor with a row more or less. A browser gets None."""
    if not request.htmx:
        return None
    part = "verdict" if request.POST.get("do") == "judge" else "editor"
    context = {"editor": editor, "editor_url": request.path}
    return render(cast(HttpRequest, request), f"components/expectation_editor.html#{part}", context)


# One case


@require_GET
@tenant_view()
def case_detail(request: TenantRequest, number: int) -> HttpResponse:
    case = _case(number)
    return _case_page(request, case, Editor.of(case, case.expectation), _text_of(case))


@require_POST
@tenant_view(Role.OPERATOR)
def case_edit(request: TenantRequest, number: int) -> HttpResponse:
    """Save another version, or show what an edit of the form would come to."""
    case = _case(number)
    editor, text = Editor.sent(case, request.POST), TextForm(request.POST)
    if "do" in request.POST:
        return _edited(request, editor) or _case_page(request, case, editor, text, is_editing=True)
    if not text.is_valid() or editor.faults:
        return _case_page(request, case, editor, text, is_editing=True, status=400)
    if editor.warnings and "anyway" not in request.POST:
        return _case_page(request, case, editor, text, is_editing=True, unsure=True)
    try:
        saved = cases.edit(
            number,
            behavior=text.cleaned_data["behavior"],
            expectation=editor.text,
            tags=text.cleaned_data["tags"],
            note=text.cleaned_data["note"],
            seen_version=_seen(request),
            by=request.user,
        )
    except ValidationError as error:
        text.add_error(None, ValidationError(error.messages))
        return _case_page(request, case, editor, text, is_editing=True, status=400)
    except CaseConflict as conflict:
        return _case_page(request, conflict.case, editor, text, is_editing=True, conflict=conflict, status=409)
    if saved.version == case.version:
        messages.info(request, _("Nothing was changed."))
    else:
        told = _("%(ref)s is at version %(version)s.") % {"ref": saved.ref, "version": saved.version}
        messages.success(request, told)
    return redirect("case-detail", slug=request.tenant.slug, number=number)


@require_POST
@tenant_view(Role.OPERATOR)
def case_step(request: TenantRequest, number: int, step: str) -> HttpResponse:
    """Archive or restore; or merge a duplicate into this case."""
    note = request.POST.get("note", "")
    try:
        if step == "merge":
            other = cases.parse_ref(request.POST.get("other", ""))
            cases.merge(number, other, note=note, by=request.user)
            told = _("%(other)s was merged into %(ref)s.") % {"other": f"REG-{other}", "ref": f"REG-{number}"}
        elif step == "archive":
            cases.archive(number, note=note, seen_version=_seen(request), by=request.user)
            told = _("%(ref)s is archived: it is not exported as active any more.") % {"ref": f"REG-{number}"}
        else:
            cases.restore(number, note=note, seen_version=_seen(request), by=request.user)
            told = _("%(ref)s is active again.") % {"ref": f"REG-{number}"}
    except NoSuchCase as error:
        raise Http404(str(error)) from error
    except CaseConflict as conflict:
        case = _case(number)
        editor = Editor.of(case, case.expectation)
        return _case_page(request, case, editor, _text_of(case), conflict=conflict, status=409)
    except ValidationError as error:
        messages.error(request, " ".join(error.messages))
    else:
        messages.success(request, told)
    return redirect("case-detail", slug=request.tenant.slug, number=number)


def _seen(request: TenantRequest) -> int:
    text = request.POST.get("version", "")
    if not text.isdecimal() or len(text) > 9:
        raise Http404(_("The form names no version."))
    return int(text)


def _case(number: int) -> Case:
    try:
        return cases.get(number)
    except NoSuchCase as error:
        raise Http404(str(error)) from error


def _text_of(case: Case) -> TextForm:
    return TextForm(initial={"behavior": case.behavior, "tags": ", ".join(case.tags)})


def _case_page(
    request: TenantRequest,
    case: Case,
    editor: Editor,
    text: TextForm,
    *,
    is_editing: bool = False,
    unsure: bool = False,
    conflict: CaseConflict | None = None,
    status: int = 200,
) -> HttpResponse:
    context = _evidence(case) | {
        "case": case,
        "editor": editor,
        "editor_url": reverse("case-edit", args=[request.tenant.slug, case.number]),
        "text": text,
        "is_editing": is_editing,
        "unsure": unsure,
        "conflict": conflict,
        "duplicates": cases.duplicates(case),
        "versions": _versions(case),
        "is_active": case.status == CaseStatus.ACTIVE,
        "feedback": visible(
            Feedback.objects.select_related("reviewer").filter(pk=case.feedback_id or 0), request.user
        ).first(),
        "context": _tree(case.context),
    }
    return render(cast(HttpRequest, request), "quality/case_detail.html", context, status=status)


def _evidence(source: Case | Draft) -> dict[str, Any]:
    """What the model was given, what it called, and what came of it."""
    return {
        "source": source,
        "conversation": read_conversation(source.messages),
        "tools": offered_tools(source.tools) if source.tools else (),
        "args": _tree(source.args),
        "result": _tree(source.result),
        "stubs": _tree(source.stubs),
    }


def _tree(text: str | None) -> jsonview.Node | None:
    """Evidence as a tree; what a model wrote that is no JSON, as the text it is."""
    if text is None:
        return None
    try:
        return jsonview.tree(jsonview.decode(text))
    except (ValueError, RecursionError):
        return jsonview.tree(text)


def _versions(case: Case) -> list[dict[str, Any]]:
    found = cases.versions(case)[: MAX_VERSIONS + 1]
    texts = [_lines(version.data) for version in found]
    pairs = zip(found[:MAX_VERSIONS], texts, [*texts[1:], ""], strict=False)
    return [{"version": version, "lines": diff(older, newer) if older else []} for version, newer, older in pairs]


def _lines(record: str) -> str:
    """A record with a member a line, every number as it is spelled."""
    return msgspec.json.format(record.encode(), indent=2).decode()
