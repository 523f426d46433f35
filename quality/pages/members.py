"""Members of a tenant, their roles, and invitations by link."""

from typing import cast

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from quality.pages.access import TenantRequest, tenant_view
from tenants import access
from tenants.models import Invitation, Membership, Role


class InvitationForm(forms.Form):
    role = forms.ChoiceField(label=gettext_lazy("Role"), choices=Role.choices, initial=Role.OPERATOR)
    email = forms.EmailField(
        label=gettext_lazy("E-mail"),
        required=False,
        help_text=gettext_lazy("Left empty, whoever has the link may join, once."),
    )


class RoleForm(forms.Form):
    role = forms.ChoiceField(choices=Role.choices)


def _page(request: TenantRequest, form: InvitationForm, *, link: str = "", status: int = 200) -> HttpResponse:
    context = {
        "members": Membership.objects.select_related("user").order_by("user__email"),
        "invitations": Invitation.objects.filter(accepted_at=None, revoked_at=None).order_by("-created_at")[:100],
        "form": form,
        "link": link,
        "roles": Role.choices,
    }
    return render(cast(HttpRequest, request), "people/members.html", context, status=status)


@require_GET
@tenant_view()
def member_list(request: TenantRequest) -> HttpResponse:
    return _page(request, InvitationForm())


@require_POST
@tenant_view(Role.ADMIN)
def invitation_create(request: TenantRequest) -> HttpResponse:
    """Makes a link and shows it, this once."""
    form = InvitationForm(request.POST)
    if not form.is_valid():
        return _page(request, form)
    _, secret = access.invite(
        role=form.cleaned_data["role"], email=form.cleaned_data["email"].lower(), created_by=request.user
    )
    link = request.build_absolute_uri(reverse("invitation", args=[secret]))
    return _page(request, InvitationForm(), link=link)


@require_POST
@tenant_view(Role.ADMIN)
def invitation_revoke(request: TenantRequest, pk: int) -> HttpResponse:
    access.revoke_invitation(invitation=get_object_or_404(Invitation.objects.all(), pk=pk), actor=request.user)
    messages.success(request, _("The invitation no longer works."))
    return redirect("member-list", slug=request.tenant.slug)


@require_POST
@tenant_view(Role.ADMIN)
def member_role(request: TenantRequest, pk: int) -> HttpResponse:
    membership = get_object_or_404(Membership.objects.select_related("user"), pk=pk)
    form = RoleForm(request.POST)
    if form.is_valid():
        try:
            access.change_role(membership=membership, role=form.cleaned_data["role"], actor=request.user)
        except access.LastAdmin:
            messages.error(request, _("A tenant needs an admin. Make somebody else admin first."))
        else:
            messages.success(
                request,
                _("%(name)s is %(role)s now.") % {"name": membership.user, "role": Role(membership.role).label.lower()},
            )
    else:
        messages.error(
            request,
            _("Role: %(given)s is none of %(roles)s.")
            % {"given": repr(request.POST.get("role", "")), "roles": ", ".join(Role.values)},
        )
    return redirect("member-list", slug=request.tenant.slug)


@require_POST
@tenant_view(Role.ADMIN)
def member_remove(request: TenantRequest, pk: int) -> HttpResponse:
    membership = get_object_or_404(Membership.objects.select_related("user"), pk=pk)
    try:
        access.remove_member(membership=membership, actor=request.user)
    except access.LastAdmin:
        messages.error(request, _("A tenant needs an admin. Make somebody else admin first."))
    else:
        messages.success(request, _("%(name)s is no longer a member.") % {"name": membership.user})
        if membership.user_id == request.user.pk:
            return redirect("home")
    return redirect("member-list", slug=request.tenant.slug)
