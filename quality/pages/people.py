"""Signing in and out, joining a tenant by a link, and one's own account."""

from typing import Any, cast

from django import forms
from django.contrib import messages
from django.contrib.auth import login, update_session_auth_hash
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import AuthenticationForm, SetPasswordForm
from django.contrib.auth.password_validation import validate_password
from django.contrib.auth.views import LoginView, LogoutView
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.http import urlsafe_base64_decode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from tenants import access, audit, throttle
from tenants.models import Invitation, User
from tenants.scope import tenant_scope

BACKEND = "django.contrib.auth.backends.ModelBackend"


def _note_signin(user: User, how: str) -> None:
    """Each tenant of the user sees the sign-in in its own audit log."""
    for membership in access.memberships_of(user):
        with tenant_scope(membership.tenant):
            audit.record("member.signed_in", object_type="user", object_id=user.pk, actor=user, detail={"how": how})


class SignInForm(AuthenticationForm):
    """E-mail and password."""

    username = forms.EmailField(label=gettext_lazy("E-mail"), widget=forms.EmailInput(attrs={"autofocus": True}))
    error_messages = {
        "invalid_login": gettext_lazy(
            "This e-mail address and password do not go together. Both are needed as you set them; the "
            "password is case-sensitive."
        ),
        "inactive": gettext_lazy("This account is switched off."),
    }

    def clean_username(self) -> str:
        return str(self.cleaned_data["username"]).strip().lower()


class SignIn(LoginView):
    template_name = "people/signin.html"
    authentication_form = SignInForm
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        email = request.POST.get("username", "").strip().lower()
        if not throttle.may_try(email, request.META.get("REMOTE_ADDR", "")):
            context = self.get_context_data(form=SignInForm(request), is_throttled=True)
            response = self.render_to_response(context, status=429)
            response["Retry-After"] = str(throttle.WINDOW_S)
            return response
        return super().post(request, *args, **kwargs)

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        response = super().form_valid(form)
        throttle.forget(form.get_user().email)
        _note_signin(form.get_user(), "password")
        return response


signin = SignIn.as_view()
signout = LogoutView.as_view()


def _user_of_link(uid: str, token: str) -> User | None:
    try:
        user = User.objects.filter(pk=int(urlsafe_base64_decode(uid)), is_active=True).first()
    except (ValueError, OverflowError, UnicodeDecodeError):
        return None
    return user if user and access.signin_link.check_token(user, token) else None


@require_http_methods(["GET", "POST"])
def signin_once(request: HttpRequest, uid: str, token: str) -> HttpResponse:
    """A one-time link. GET shows a button only: a program that looks links up before a person does uses none up."""
    user = _user_of_link(uid, token)
    if user is None:
        return render(request, "people/signin_once.html", {"link_user": None}, status=410)
    if request.method == "POST":
        if not access.use_signin_link(user):
            return render(request, "people/signin_once.html", {"link_user": None}, status=410)
        login(request, user, backend=BACKEND)
        _note_signin(user, "link")
        return redirect("home")
    return render(request, "people/signin_once.html", {"link_user": user})


@login_required
def home(request: HttpRequest) -> HttpResponse:
    """The way in: one's only tenant at once, else the list of them (the tenant switcher)."""
    memberships = access.memberships_of(cast(User, request.user))
    if len(memberships) == 1 and "switch" not in request.GET:
        return redirect("overview", slug=memberships[0].tenant.slug)
    return render(request, "people/home.html", {"memberships": memberships})


class JoinForm(forms.Form):
    """A new account, made while joining."""

    email = forms.EmailField(label=gettext_lazy("E-mail"), max_length=254)
    name = forms.CharField(label=gettext_lazy("Name"), max_length=120, required=False)
    password = forms.CharField(
        label=gettext_lazy("Password"),
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=gettext_lazy("At least 10 characters."),
    )

    def clean_email(self) -> str:
        email = str(self.cleaned_data["email"]).strip().lower()
        if User.objects.filter(email=email).exists():
            raise ValidationError(_("There is an account with this address. Sign in, then open the link again."))
        return email

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        if password := data.get("password"):
            try:
                validate_password(password, User(email=data.get("email", ""), name=data.get("name", "")))
            except ValidationError as error:
                self.add_error("password", error)
        return data


@require_http_methods(["GET", "POST"])
def invitation(request: HttpRequest, secret: str) -> HttpResponse:
    """Join a tenant by an invitation: with the account one is signed in to, or with a new one."""
    found = access.find_invitation(secret)
    if found is None:
        return render(request, "people/invitation.html", {"invitation": None}, status=410)
    context: dict[str, Any] = {"invitation": found}
    if request.user.is_authenticated:
        if found.email and found.email.lower() != request.user.email:
            return render(request, "people/invitation.html", context | {"meant_for": found.email}, status=403)
        if request.method == "POST":
            return _join(request, found, request.user)
        return render(request, "people/invitation.html", context)
    form = JoinForm(request.POST or None, initial={"email": found.email})
    if request.method == "POST" and form.is_valid():
        if found.email and found.email.lower() != form.cleaned_data["email"]:
            form.add_error("email", _("This invitation is for %(email)s.") % {"email": found.email})
        else:
            return _join_as_new(request, found, form)
    return render(request, "people/invitation.html", context | {"form": form})


def _join_as_new(request: HttpRequest, found: Invitation, form: JoinForm) -> HttpResponse:
    """Account and membership together or neither: who loses the race for a link is left with no half of it."""
    data = form.cleaned_data
    try:
        with transaction.atomic():
            user = User.objects.create_user(data["email"], data["password"], name=data["name"])
            if access.accept_invitation(invitation=found, user=user) is None:
                raise _Taken
    except _Taken:
        return render(request, "people/invitation.html", {"invitation": None}, status=410)
    except (IntegrityError, ValidationError):  # the same form twice at once: the other one made the account
        form.add_error("email", _("There is an account with this address. Sign in, then open the link again."))
        return render(request, "people/invitation.html", {"invitation": found, "form": form})
    login(request, user, backend=BACKEND)
    return _joined(request, found)


class _Taken(Exception):
    """Somebody else used the invitation first."""


def _join(request: HttpRequest, found: Invitation, user: User) -> HttpResponse:
    if access.accept_invitation(invitation=found, user=user) is None:
        return render(request, "people/invitation.html", {"invitation": None}, status=410)
    return _joined(request, found)


def _joined(request: HttpRequest, found: Invitation) -> HttpResponse:
    messages.success(request, _("You joined %(tenant)s.") % {"tenant": found.tenant})
    return redirect("overview", slug=found.tenant.slug)


class AccountForm(forms.ModelForm):
    class Meta:
        model = User
        fields = ("name",)
        labels = {"name": gettext_lazy("Name")}


class PasswordForm(SetPasswordForm):
    """A new password. The old one is asked for where there is one (a link may have made the account without)."""

    old_password = forms.CharField(
        label=gettext_lazy("Present password"), widget=forms.PasswordInput(attrs={"autocomplete": "current-password"})
    )
    field_order = ("old_password", "new_password1", "new_password2")

    def __init__(self, user: User, *args: Any, **kwargs: Any) -> None:
        super().__init__(user, *args, **kwargs)
        if not user.has_usable_password():
            del self.fields["old_password"]

    def clean_old_password(self) -> str:
        given = str(self.cleaned_data["old_password"])
        if not self.user.check_password(given):
            raise ValidationError(_("This is not the present password."))
        return given


@login_required
@require_http_methods(["GET", "POST"])
def account(request: HttpRequest) -> HttpResponse:
    """Name and password of the person signed in."""
    user = cast(User, request.user)
    what = request.POST.get("what")
    account_form = AccountForm(request.POST if what == "name" else None, instance=user)
    password_form = PasswordForm(user, request.POST if what == "password" else None)
    if what == "name" and account_form.is_valid():
        account_form.save()
        messages.success(request, _("Name saved."))
        return redirect("account")
    if what == "password" and password_form.is_valid():
        password_form.save()
        update_session_auth_hash(request, user)  # this session stays, all others end
        messages.success(request, _("Password saved. Other sessions are signed out."))
        return redirect("account")
    return render(request, "people/account.html", {"account_form": account_form, "password_form": password_form})
