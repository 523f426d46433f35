"""Every route is asked, method by method, by who must not get in: nobody, a revoked token, another tenant, a lesser
role (T6, B12). Routes come from the URL configuration; who may is in `doors.py`, where a new one has to be listed."""

import json
import re
import uuid
from dataclasses import dataclass
from typing import Any

import pytest
from django.db.models import Model
from django.test import Client

from quality.api.auth import ROLE_FOR
from quality.models import (
    BulkAction,
    CoachRun,
    Export,
    Import,
    OtlpTrace,
    Proposal,
    QuarantineProposal,
    QueueEntry,
    Replay,
    ReplayFinding,
    ReplayNotification,
    ReplaySchedule,
    ReviewQueue,
    SavedView,
    Schedule,
    SuggestionRun,
    ToolCall,
    Turn,
    TurnRun,
    Webhook,
    WebhookDelivery,
)
from tenants import secrets
from tenants.models import (
    ApiToken,
    ExchangeOrder,
    ExchangeRate,
    HttpToolRow,
    Invitation,
    MaskRule,
    Membership,
    ModelEndpoint,
    Role,
    Scope,
    Secret,
    Skill,
    Style,
    Tenant,
)
from tenants.scope import tenant_scope
from tenants.tokens import revoke_token
from tests.factories import MembershipFactory, TenantFactory, make_token
from tests.masking.canaries import rows_of_every_kind
from tests.pages import reads
from tests.pages.world import make_world
from tests.tenants.doors import API, ELSEWHERE, OF_NOBODY, PAGES

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
BY_BROWSERS = ("GET", "POST", "DELETE")  # the last stands for all that no page takes
# The rows that routes are about, by what their names begin with. The longest beginning counts.
ROWS: dict[str, type[Model]] = {
    "bulk": BulkAction, "call": ToolCall, "coach": CoachRun, "confirm": Replay, "dispute": Replay, "export": Export,
    "finding": ReplayFinding, "import": Import, "invitation": Invitation, "kept-tool": HttpToolRow, "mask": MaskRule,
    "member": Membership, "model": ModelEndpoint, "order": ExchangeOrder, "proposal": Proposal,
    "quarantine": QuarantineProposal, "queue": ReviewQueue, "rate": ExchangeRate, "replay": Replay,
    "replay-notification-again": ReplayNotification, "replay-notifications": ReplaySchedule,
    "replay-schedule": ReplaySchedule, "run": TurnRun, "samples": Replay, "saved-view": SavedView,
    "schedule": Schedule, "secret": Secret, "skill": Skill, "style": Style, "suggestion": SuggestionRun,
    "token": ApiToken, "tool": HttpToolRow, "tool-call": ToolCall, "trace": OtlpTrace, "turn": Turn, "view": SavedView,
    "reviewer": Membership, "webhook": Webhook, "webhook-again": WebhookDelivery,
}  # fmt: skip
NO_ID = 7_000_000  # of no row of any tenant
CASE = 1_234
NOT_MADE = {"export-fetch", "export-manifest"}  # the file that was ordered is not there yet
# Bodies that come as far as the row: an empty one would be refused before.
BODIES: dict[str, dict[str, Any]] = {
    "api-tool-call-feedback": {"label": "other"},
    "api-turn-feedback": {"label": "other"},
}


@dataclass(frozen=True)
class Door:
    """A route and what it takes: the least role or the scope, by method."""

    name: str
    pattern: str
    takes: dict[str, str]

    @property
    def is_api(self) -> bool:
        return "<slug:" not in self.pattern

    @property
    def has_id(self) -> bool:
        return re.search(r"<(?!slug:)", self.pattern) is not None

    def at(self, slug: str, ids: dict[str, int], *, case: int, entry: int) -> str:
        """Its address; LookupError if nobody said which rows it is about."""

        def value(match: re.Match[str]) -> str:
            part = match[1]
            given = {"slug": slug, "ref": f"REG-{case}", "number": case, "entry": entry, "position": 0}
            return str(given[part] if part in given else ids[self.about])

        return re.sub(r"<\w+:(\w+)>", value, self.pattern)

    @property
    def about(self) -> str:
        kind = self.name.removeprefix("api-")
        known = [begins for begins in ROWS if kind.startswith(begins)]
        if not known:
            raise LookupError(f"{self.name}: which row is it about? Name it in ROWS.")
        return max(known, key=len)


def doors() -> list[Door]:
    """Every route of a tenant; LookupError for one that `doors.py` does not list."""
    listed: dict[str, dict[str, str]] = {}
    for (reads_from, writes_from), names in PAGES.items():
        takes = {"GET": reads_from, "POST": writes_from}
        listed |= {name: {method: role for method, role in takes.items() if role != "-"} for name in names.split()}
    for scopes, names in API.items():
        listed |= {name: dict(scopes) for name in names.split()}
    found = [(name, pattern) for name, pattern in reads.routes() if name not in OF_NOBODY | ELSEWHERE]
    if unlisted := {name for name, _ in found} - set(listed):
        raise LookupError(f"Who may what there? List in tests/tenants/doors.py: {', '.join(sorted(unlisted))}.")
    assert not set(listed) - {name for name, _ in found}, "listed, and there no more"
    return [Door(name, pattern, listed[name]) for name, pattern in found]


@dataclass(frozen=True)
class Sides:
    """Acme with rows of every kind, and an admin of another tenant with a token."""

    acme: Membership
    ids: dict[str, int]
    entry: int
    stranger: Client
    token: str


@pytest.fixture
def sides(db: None) -> Sides:
    acme = make_world()
    with tenant_scope(acme.tenant_id):
        rows_of_every_kind(acme.user)
        replay = Replay.objects.latest("pk")
        Replay.objects.update(schedule=ReplaySchedule.objects.latest("pk"))
        ReplayNotification.objects.create(
            replay=replay, kind="email", target="a@example.com", message_id=uuid.uuid4(), body="{}", state="failed"
        )
        secrets.set_secret(name="SHOP_KEY", value="canary-0815", actor=acme.user)
        ids = {kind: model._base_manager.order_by("-pk")[0].pk for kind, model in ROWS.items()}
        own_turn = TurnRun.objects.order_by("-pk")[0].turn_id
        failed = ToolCall.objects.filter(is_error=True).order_by("-pk")[0].pk
        ids |= {"call": failed, "reviewer": acme.user_id, "run": own_turn, "turn": own_turn}
        entry = QueueEntry.objects.filter(queue=ids["queue"]).order_by("-pk")[0].pk
    with tenant_scope(TenantFactory(slug="globex")):
        member = MembershipFactory(role=Role.ADMIN)
        _, token = make_token(member)
    client = Client()
    client.force_login(member.user)
    return Sides(acme, ids, entry, client, token)


def ask(client: Client, method: str, path: str, body: dict[str, Any] | None = None, token: str = "") -> Any:
    """The answer to a request with a form, or with JSON where a token is given."""
    if token or path.startswith(("/api/", "/v1/")):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return client.generic(method, path, json.dumps(body or {}), "application/json", headers=headers)
    return getattr(client, method.lower())(path, body or {})


def said(response: Any, *ids: object) -> str:
    """What an answer says, without what is drawn anew for each and the ids that were asked for."""
    text = response.content.decode()
    text = re.sub(r'(nonce="|csrfmiddlewaretoken" value="|"X-CSRFToken": "|"requestId":")[^"]*', r"\1", text)
    return re.sub(rf"\b({'|'.join(map(str, ids))})\b", "N", text)


def test_every_route_is_listed() -> None:
    assert len(doors()) > 350


def test_nobody_gets_in_without_signing_in(db: None) -> None:
    wrong = []
    anybody = Client()
    ids = dict.fromkeys(ROWS, NO_ID)
    asked = [(door, method) for door in doors() for method in (METHODS if door.is_api else BY_BROWSERS)]
    for door, method in asked:
        response = ask(anybody, method, door.at("acme", ids, case=CASE, entry=1))
        if door.is_api:
            is_refused = response.status_code == 401
        else:
            to_sign_in = response.headers.get("Location", "").startswith("/signin/?next=/t/acme/")
            is_refused = to_sign_in or (method not in door.takes and response.status_code == 405)
        wrong += [] if is_refused else [(method, door.name, response.status_code)]
    assert wrong == []


def test_every_write_needs_the_token_of_its_form(sides: Sides) -> None:
    """A page of another site makes a browser send the cookie, and no more."""
    owner = Client(enforce_csrf_checks=True)
    owner.force_login(sides.acme.user)
    answers = {
        door.name: ask(owner, "POST", door.at("acme", sides.ids, case=CASE, entry=sides.entry))
        for door in doors()
        if not door.is_api and "POST" in door.takes
    }
    assert {response.status_code for response in answers.values()} == {403}
    assert all("This form is out of date" in response.text for response in answers.values())


def test_a_revoked_token_opens_nothing(tenant: Tenant) -> None:
    with tenant_scope(tenant):
        member = MembershipFactory(role=Role.ADMIN)
        token, text = make_token(member)
        revoke_token(token=token, actor=member.user)
    ids = dict.fromkeys(ROWS, NO_ID)
    answers = {
        (method, door.name): ask(Client(), method, door.at("", ids, case=CASE, entry=1), token=text).status_code
        for door in doors()
        if door.is_api
        for method in door.takes
    }
    assert set(answers.values()) == {401}, answers


def test_another_tenants_pages_are_not_there(sides: Sides) -> None:
    wrong = []
    for door in (door for door in doors() if not door.is_api):
        path = door.at("acme", sides.ids, case=CASE, entry=sides.entry)
        for method in door.takes:
            response = ask(sides.stranger, method, path)
            wrong += [(method, door.name, response.status_code)] if response.status_code != 404 else []
    assert wrong == []


def test_another_tenants_rows_answer_as_rows_that_are_not_there(sides: Sides) -> None:
    """In one's own tenant, with the ids of another one's rows: word for word what an unknown id gets."""
    wrong = []
    missing_ids, entry = dict.fromkeys(ROWS, NO_ID), NO_ID
    for door in doors():
        if not door.has_id:
            continue
        theirs = door.at("globex", sides.ids, case=CASE, entry=sides.entry)
        missing = door.at("globex", missing_ids, case=NO_ID, entry=entry)
        for method in door.takes:
            token = sides.token if door.is_api else ""
            body = BODIES.get(door.name)
            first, second = (ask(sides.stranger, method, path, body, token) for path in (theirs, missing))
            ids = {CASE, NO_ID, sides.entry, *sides.ids.values()}
            if first.status_code not in (400, 404, 415) or first.status_code != second.status_code:
                wrong.append((method, door.name, first.status_code, second.status_code))
            elif said(first, *ids) != said(second, *ids):
                wrong.append((method, door.name, said(first, *ids)[:600], said(second, *ids)[:600]))
    assert wrong == []


def test_the_rows_are_there_for_their_own_tenant(sides: Sides) -> None:
    """The positive control of the two before it."""
    owner = Client()
    owner.force_login(sides.acme.user)
    with tenant_scope(sides.acme.tenant_id):
        _, token = make_token(sides.acme)
    wrong = []
    for door in doors():
        if not door.has_id or "GET" not in door.takes or door.name in reads.ENDLESS | NOT_MADE:
            continue
        path = door.at("acme", sides.ids, case=CASE, entry=sides.entry)
        response = ask(owner, "GET", path, token=token if door.is_api else "")
        is_there = response.status_code == 200 or response.headers.get("Location", "").startswith("/t/acme/")
        wrong += [] if is_there else [(door.name, response.status_code)]
    assert wrong == []


def test_a_lesser_role_is_refused_and_the_least_is_not(tenant: Tenant) -> None:
    roles = [Role.VIEWER, Role.OPERATOR, Role.ADMIN]
    clients = {}
    for role in roles:
        with tenant_scope(tenant):
            member = MembershipFactory(role=role)
        clients[role] = Client()
        clients[role].force_login(member.user)
    wrong = []
    ids = dict.fromkeys(ROWS, NO_ID)
    for door in (door for door in doors() if not door.is_api and door.name not in reads.ENDLESS):
        for method, least in door.takes.items():
            asking = [roles[place] for place in range(roles.index(Role(least)) + 1)][-2:]
            for role in asking:
                response = ask(clients[role], method, door.at(tenant.slug, ids, case=NO_ID, entry=NO_ID))
                if (response.status_code == 403) != (role != least) or "/signin/" in response.headers.get(
                    "Location", ""
                ):
                    wrong.append((method, door.name, role, response.status_code))
    assert wrong == []


def test_a_token_needs_its_scope_and_its_maker_the_role(tenant: Tenant) -> None:
    below = {Role.ADMIN: Role.OPERATOR, Role.OPERATOR: Role.VIEWER}
    every = {scope.value for scope in Scope}
    with tenant_scope(tenant):
        admin = MembershipFactory(role=Role.ADMIN)
        makers = {role: MembershipFactory(role=role) for role in below.values()}
        enough = {scope: make_token(admin, scope)[1] for scope in every}
        without = {scope: make_token(admin, *(every - {scope}))[1] for scope in every}
        lesser = {role: make_token(member, *every)[1] for role, member in makers.items()}
    wrong = []
    ids = dict.fromkeys(ROWS, NO_ID)
    for door in (door for door in doors() if door.is_api and door.name not in reads.ENDLESS):
        path = door.at("", ids, case=NO_ID, entry=NO_ID)
        for method, scope in door.takes.items():
            refused = [without[scope]]
            if (maker := below.get(ROLE_FOR[Scope(scope)])) is not None:
                refused.append(lesser[maker])
            statuses = [ask(Client(), method, path, token=text).status_code for text in (*refused, enough[scope])]
            if set(statuses[:-1]) != {403} or statuses[-1] in (401, 403, 405):
                wrong.append((method, door.name, statuses))
    assert wrong == []
