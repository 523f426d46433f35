"""The exchange desk: the engine's tools over our rows, and the page where people set rates and follow orders."""

import asyncio
import time
from decimal import Decimal

import pytest
from django.core.exceptions import ValidationError

from engine.tools import Registry, ToolContext
from engine.tools.exchange import OrderState, Verification
from quality.turns.resolver import Conversation, resolve_tools
from tenants import exchange
from tenants.models import AuditEvent, ExchangeOrder, ExchangeRate
from tenants.scope import tenant_scope

PAGE = "/t/acme/exchange/"
RATE = {"give": "eur", "get": "USDT", "rate": "1.08", "min_amount": "10", "max_amount": "5000", "verify_from": "1000",
        "get_digits": "2", "is_active": "on"}  # fmt: skip


@pytest.fixture
def admin(member):
    return member("admin").user


@pytest.fixture
def rate(tenant, admin) -> ExchangeRate:
    with tenant_scope(tenant):
        made = ExchangeRate(give="EUR", get="USDT", rate=Decimal("1.08"), min_amount=10, max_amount=5000,
                            verify_from=1000)  # fmt: skip
        exchange.save_rate(made, actor=admin)
        return made


def call(tenant, name: str, arguments=None, *, customer: str = "ann", key: str = "k1"):
    box = resolve_tools(tenant, Conversation(contact_id=customer, run="r"))
    context = ToolContext(deadline=time.monotonic() + 5, idempotency_key=key)
    return asyncio.run(Registry(box.tools).run(name, arguments or {}, context))


def names(tenant, customer: str = "ann") -> set[str]:
    return {tool.name for tool in resolve_tools(tenant, Conversation(contact_id=customer, run="r")).tools}


def test_its_tools_are_offered_only_while_there_is_an_active_rate(tenant, admin, rate):
    assert "create_exchange_order" in names(tenant)
    with tenant_scope(tenant):
        rate.is_active = False
        exchange.save_rate(rate, actor=admin)
    assert names(tenant) == set()


def test_nobody_is_served_whom_the_desk_does_not_know(tenant, rate):
    assert names(tenant, customer="") == set()


def test_another_tenants_desk_is_closed(rate, other_tenant):
    assert names(other_tenant) == set()


class TestOrders:
    AMOUNT = {"give": "EUR", "get": "USDT", "amount": "100"}

    def test_an_order_goes_from_quote_to_payout_once(self, tenant, admin, rate):
        assert '"get_amount": "108"' in call(tenant, "compute_exchange_quote", self.AMOUNT).text
        assert not call(tenant, "create_exchange_order", self.AMOUNT).is_error
        call(tenant, "create_exchange_order", self.AMOUNT)  # the same key again makes nothing
        with tenant_scope(tenant):
            order = ExchangeOrder.objects.get()
            exchange.set_requisites("EUR", {"IBAN": "DE00 1234"}, actor=admin)
        one = {"order_id": str(order.pk)}
        assert "DE00 1234" in call(tenant, "fetch_exchange_requisites", one).text
        payout = one | {"destination": "wallet-77"}
        assert call(tenant, "issue_exchange_payout", payout, key="p1").error == "not_paid"
        with tenant_scope(tenant):
            assert exchange.move_order(order, to=OrderState.PAID, actor=admin)
        assert not call(tenant, "issue_exchange_payout", payout, key="p1").is_error
        assert not call(tenant, "issue_exchange_payout", payout, key="p1").is_error
        assert call(tenant, "issue_exchange_payout", payout, key="p2").error == "wrong_state"
        with tenant_scope(tenant):
            order.refresh_from_db()
            assert (order.state, order.destination) == ("paid_out", "wallet-77")
            assert AuditEvent.objects.filter(action="order.paid_out").count() == 1
            assert not exchange.move_order(order, to=OrderState.CANCELLED, actor=admin)

    def test_large_amounts_need_a_verified_customer(self, tenant, admin, rate):
        large = self.AMOUNT | {"amount": "1000"}
        assert call(tenant, "create_exchange_order", large).error == "verification_required"
        with tenant_scope(tenant):
            exchange.set_verification("ann", Verification.VERIFIED, actor=admin)
        assert not call(tenant, "create_exchange_order", large, key="k2").is_error

    def test_another_customers_order_is_none(self, tenant, rate):
        call(tenant, "create_exchange_order", self.AMOUNT)
        with tenant_scope(tenant):
            pk = ExchangeOrder.objects.get().pk
        for order_id in (str(pk), "999999", "x", "9" * 40):
            answer = call(tenant, "verify_exchange_payment", {"order_id": order_id}, customer="bob")
            assert answer.error == "no_order"


@pytest.mark.parametrize(
    "fields", [{"rate": 0}, {"give": "euro!"}, {"min_amount": 10, "max_amount": 5}, {"get_digits": 9}, {"rate": -1}]
)
def test_a_rate_that_cannot_be_is_refused(tenant, admin, fields):
    made = {"give": "EUR", "get": "USD", "rate": 1, "max_amount": 100} | fields
    with tenant_scope(tenant), pytest.raises(ValidationError):
        exchange.save_rate(ExchangeRate(**made), actor=admin)


class TestPage:
    def test_rates_details_and_customers_are_set(self, browse, tenant):
        client = browse()
        assert "EUR to USDT is saved" in client.post(f"{PAGE}rates/save/", RATE, follow=True).text
        client.post(f"{PAGE}rates/save/", RATE | {"rate": "1.1"})  # the same pair
        client.post(f"{PAGE}requisites/", {"currency": "eur", "details": '{"IBAN": "DE00"}'})
        client.post(f"{PAGE}info/", {"details": '{"hours": "9 to 5"}'})
        client.post(f"{PAGE}customers/", {"contact_id": "ann", "verification": "verified"})
        page = client.get(PAGE).text
        for shown in ("1.1", "DE00", "9 to 5", "ann"):
            assert shown in page
        with tenant_scope(tenant):
            assert ExchangeRate.objects.count() == 1
        assert '"hours": "9 to 5"' in call(tenant, "get_exchange_business_info").text
        client.post(f"{PAGE}requisites/", {"currency": "EUR", "details": ""})
        assert "DE00" not in client.get(PAGE).text

    @pytest.mark.parametrize(
        ("path", "form", "told"),
        [
            ("rates/save/", RATE | {"rate": "x"}, "Enter a number"),
            ("rates/save/", RATE | {"give": "euro!"}, "capital letters"),
            ("rates/save/", RATE | {"max_amount": "1"}, "largest amount is below"),
            ("requisites/", {"currency": "EUR", "details": "["}, "not JSON"),
            ("requisites/", {"currency": "", "details": "{}"}, "cannot be blank"),
            ("info/", {"details": "[]"}, "JSON object is needed"),
            ("customers/", {"contact_id": "ann", "verification": "perhaps"}, "valid choice"),
        ],
    )
    def test_bad_input_is_told_back(self, browse, path, form, told):
        assert told in browse().post(PAGE + path, form).text

    def test_an_operator_marks_orders_and_sets_no_rates(self, browse, tenant, rate):
        call(tenant, "create_exchange_order", TestOrders.AMOUNT)
        with tenant_scope(tenant):
            pk = ExchangeOrder.objects.get().pk
        client = browse("operator")
        assert f"Order {pk} is paid" in client.post(f"{PAGE}orders/{pk}/paid/", follow=True).text
        assert "cannot become paid" in client.post(f"{PAGE}orders/{pk}/paid/", follow=True).text
        assert f"Order {pk} is cancelled" in client.post(f"{PAGE}orders/{pk}/cancel/", follow=True).text
        for path in ("rates/save/", f"rates/{rate.pk}/delete/", "requisites/", "info/"):
            assert client.post(PAGE + path, RATE).status_code == 403
        reader = browse("viewer")
        assert reader.get(PAGE).status_code == 200
        for path in (f"orders/{pk}/paid/", f"orders/{pk}/cancel/", "customers/"):
            assert reader.post(PAGE + path).status_code == 403

    def test_outsiders_get_404(self, outsider, tenant, rate):
        assert outsider.get(PAGE).status_code == 404
        assert outsider.post(f"{PAGE}rates/{rate.pk}/delete/").status_code == 404
        assert outsider.post(f"/t/globex/exchange/rates/{rate.pk}/delete/").status_code == 404


def test_amounts_are_shown_in_full(browse, rate):
    page = browse("viewer").get(PAGE).text
    assert "10 – 5000" in page
    assert "E+" not in page
