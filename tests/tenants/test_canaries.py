"""Two tenants with rows of every kind: nothing of one is in any answer to the other (T9), and no secret is in any
(S4)."""

import pytest

from quality.models import Feedback
from tenants import endpoints, secrets
from tenants.models import Membership, ModelEndpoint, User
from tenants.scope import tenant_scope
from tests.masking.canaries import CANARY, plant, rows_of_every_kind
from tests.masking.test_everywhere import Crawl
from tests.pages.world import make_world

OURS, THEIRS = "Aardvark", "Bandicoot"  # before all names that people give
SECRETS = ("canary/0815+tool", "sk-canary/4711")


def make(slug: str, word: str) -> Membership:
    """The admin of a tenant with rows of every kind, whose people's addresses are free again."""
    admin = make_world(slug, word=f"{word} ")
    for user in User.objects.filter(email__endswith="@example.com"):
        User.objects.filter(pk=user.pk).update(email=user.email.replace("example.com", f"{slug}.example"))
    with tenant_scope(admin.tenant_id):
        rows_of_every_kind(admin.user)
    return admin


def test_nothing_of_another_tenant_and_no_secret_is_in_any_answer(db: None, caplog: pytest.LogCaptureFixture) -> None:
    theirs, ours = make("globex", THEIRS), make("acme", OURS)
    with tenant_scope(theirs.tenant_id):
        plant()
        assert Feedback.objects.filter(note__contains="zkpat.").exists()
    with tenant_scope(ours.tenant_id):
        secrets.set_secret(name="SHOP_KEY", value=SECRETS[0], actor=ours.user)
        kept = ModelEndpoint.objects.latest("pk")
        data = endpoints.EndpointData(
            label=kept.label, base_url=kept.base_url, model=kept.model, key=SECRETS[1], is_enabled=True
        )
        endpoints.save_endpoint(data, actor=ours.user, pk=kept.pk)
    answers = Crawl(ours).by(ours)
    assert sum(one.status == 200 for one in answers.values()) > 180
    assert sum(OURS in one.text for one in answers.values()) > 60  # positive control
    leaks = {
        path: found
        for path, one in answers.items()
        for said in [one.text + one.headers]
        if (found := [*CANARY.findall(said), *(word for word in (THEIRS, *SECRETS) if word in said)])
    }
    assert leaks == {}
    assert not CANARY.search(caplog.text)
    assert not [word for word in (THEIRS, *SECRETS) if word in caplog.text]
