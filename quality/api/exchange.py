"""The exchange desk over the API: rates, where customers pay, what is told of the desk, customers, orders."""
# mypy: disable-error-code="assignment"
# (a field may be called `source`: REST framework takes declared fields off the class)

from typing import Any

from django.http import Http404, HttpResponse
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from engine.tools.exchange import OrderState, Verification
from quality.api.base import TenantView, TokenRequest, in_scope, read_body
from quality.api.problems import problem
from quality.api.shapes import StrictRequest
from tenants import exchange
from tenants.models import ExchangeCustomer, ExchangeOrder, ExchangeRate, ExchangeRequisites, Scope

MAX_SHOWN = 200  # newest orders and customers


def amount(**options: Any) -> serializers.DecimalField:
    """A decimal as text, for no digit of it is to be lost. In requests numbers will do, too."""
    return serializers.DecimalField(max_digits=24, decimal_places=8, normalize_output=True, **options)


class RateSerializer(serializers.Serializer):
    """One unit of `give` buys `rate` of `get`. `verifyFrom`: amounts that only verified customers may exchange."""

    id = serializers.IntegerField(read_only=True)
    give = serializers.CharField()
    get = serializers.CharField()
    rate = amount()
    minAmount = amount(source="min_amount")
    maxAmount = amount(source="max_amount")
    verifyFrom = amount(source="verify_from", allow_null=True)
    getDigits = serializers.IntegerField(source="get_digits")
    active = serializers.BooleanField(source="is_active")


class RequisitesSerializer(serializers.Serializer):
    currency = serializers.CharField()
    details = serializers.DictField()


class DeskSerializer(serializers.Serializer):
    """The desk as agents see it. Its tools are offered while a rate is active."""

    info = serializers.DictField(help_text="What is told of the desk.")
    rates = RateSerializer(many=True)
    requisites = RequisitesSerializer(many=True)


class RateRequest(StrictRequest):
    """A rate. The pair's rate is changed if there is one."""

    give = serializers.CharField(max_length=12)
    get = serializers.CharField(max_length=12)
    rate = amount()
    minAmount = amount(source="min_amount", required=False)
    maxAmount = amount(source="max_amount")
    verifyFrom = amount(
        source="verify_from",
        required=False,
        allow_null=True,
        help_text="0: always, null: never. Left out: 0 for a new rate, and as it was for another one.",
    )
    getDigits = serializers.IntegerField(source="get_digits", required=False, min_value=0, max_value=8)
    active = serializers.BooleanField(source="is_active", required=False)


class RequisitesRequest(StrictRequest):
    """Where customers pay in a currency; empty `details` take it away."""

    currency = serializers.CharField(max_length=12)
    details = serializers.DictField()


class InfoRequest(StrictRequest):
    info = serializers.DictField()


class CustomerSerializer(serializers.Serializer):
    contactId = serializers.CharField(source="contact_id")
    verification = serializers.ChoiceField(choices=[one.value for one in Verification])
    updatedAt = serializers.DateTimeField(source="updated_at")


class CustomerListSerializer(serializers.Serializer):
    customers = CustomerSerializer(many=True)


class CustomerRequest(StrictRequest):
    contactId = serializers.CharField(max_length=200)
    verification = serializers.ChoiceField(choices=[one.value for one in Verification])


class OrderSerializer(serializers.Serializer):
    id = serializers.IntegerField()
    contactId = serializers.CharField(source="contact_id")
    give = serializers.CharField()
    get = serializers.CharField()
    giveAmount = amount(source="give_amount")
    getAmount = amount(source="get_amount")
    needsVerification = serializers.BooleanField(source="needs_verification")
    state = serializers.CharField(help_text="One of created, paid, paid_out, cancelled.")
    destination = serializers.CharField()
    createdAt = serializers.DateTimeField(source="created_at")
    updatedAt = serializers.DateTimeField(source="updated_at")


class OrderListSerializer(serializers.Serializer):
    orders = OrderSerializer(many=True)


def _desk() -> dict[str, Any]:
    shown = {
        "info": exchange.desk().info,
        "rates": ExchangeRate.objects.order_by("give", "get"),
        "requisites": ExchangeRequisites.objects.order_by("currency"),
    }
    return dict(DeskSerializer(shown).data)


class DeskView(TenantView):
    required_scope = Scope.SETTINGS_WRITE  # where customers pay is for those who set it, and for customers

    @extend_schema(operation_id="getExchangeDesk", tags=["Exchange"], responses=DeskSerializer)
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """Rates, where customers pay, and what is told of the desk."""
        return Response(_desk())

    @extend_schema(operation_id="setExchangeInfo", tags=["Exchange"], request=InfoRequest, responses=DeskSerializer)
    @in_scope
    def patch(self, request: TokenRequest) -> Response:
        """Set what is told of the desk: hours, address, rules."""
        exchange.set_info(read_body(InfoRequest, request)["info"], actor=request.user, token=request.auth)
        return Response(_desk())


class RatesView(TenantView):
    required_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="saveExchangeRate", tags=["Exchange"], request=RateRequest, responses=RateSerializer)
    @in_scope
    def post(self, request: TokenRequest) -> Response:
        """Make a rate, or change the one of this pair. Turns that begin from now on quote it."""
        wanted = read_body(RateRequest, request)
        pair = {name: wanted[name].strip().upper() for name in ("give", "get")}
        rate = ExchangeRate.objects.filter(**pair).first() or ExchangeRate(verify_from=0)
        for name, value in wanted.items():
            setattr(rate, name, value)
        exchange.save_rate(rate, actor=request.user, token=request.auth)
        return Response(RateSerializer(ExchangeRate.objects.get(pk=rate.pk)).data)


class RateView(TenantView):
    required_scope = Scope.SETTINGS_WRITE

    @extend_schema(
        operation_id="deleteExchangeRate",
        tags=["Exchange"],
        responses={204: OpenApiResponse(description="It is deleted.")},
    )
    @in_scope
    def delete(self, request: TokenRequest, pk: int) -> Response:
        """Delete a rate. Orders that were made stay."""
        rate = ExchangeRate.objects.filter(pk=pk).first()
        if rate is None:
            raise Http404
        exchange.delete_rate(rate, actor=request.user, token=request.auth)
        return Response(status=204)


class RequisitesView(TenantView):
    required_scope = Scope.SETTINGS_WRITE

    @extend_schema(
        operation_id="setExchangeRequisites", tags=["Exchange"], request=RequisitesRequest, responses=DeskSerializer
    )
    @in_scope
    def post(self, request: TokenRequest) -> Response:
        """Set where customers pay in a currency, or take it away with empty details."""
        exchange.set_requisites(**read_body(RequisitesRequest, request), actor=request.user, token=request.auth)
        return Response(_desk())


class CustomersView(TenantView):
    required_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="listExchangeCustomers", tags=["Exchange"], responses=CustomerListSerializer)
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """Whose identity is verified: the newest first."""
        found = ExchangeCustomer.objects.order_by("-updated_at")[:MAX_SHOWN]
        return Response({"customers": CustomerSerializer(found, many=True).data})

    @extend_schema(
        operation_id="setExchangeCustomer", tags=["Exchange"], request=CustomerRequest, responses=CustomerSerializer
    )
    @in_scope
    def post(self, request: TokenRequest) -> Response:
        """Say whether a customer's identity is verified."""
        wanted = read_body(CustomerRequest, request)
        exchange.set_verification(
            wanted["contactId"], Verification(wanted["verification"]), actor=request.user, token=request.auth
        )
        return Response(CustomerSerializer(ExchangeCustomer.objects.get(contact_id=wanted["contactId"])).data)


class OrdersView(TenantView):
    required_scope = Scope.READ

    @extend_schema(operation_id="listExchangeOrders", tags=["Exchange"], responses=OrderListSerializer)
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """The newest orders."""
        return Response({"orders": OrderSerializer(ExchangeOrder.objects.order_by("-pk")[:MAX_SHOWN], many=True).data})


class OrderMoveView(TenantView):
    """`to` comes from the address."""

    required_scope = Scope.SETTINGS_WRITE
    to: OrderState = OrderState.PAID

    def move(self, request: TokenRequest, pk: int) -> Response | HttpResponse:
        order = ExchangeOrder.objects.filter(pk=pk).first()
        if order is None:
            raise Http404
        if not exchange.move_order(order, to=self.to, actor=request.user, token=request.auth):
            return problem(409, "wrong_state", f"Order {pk} is {order.state} and cannot become {self.to.value}.")
        return Response(OrderSerializer(ExchangeOrder.objects.get(pk=pk)).data)


_MOVED = {200: OrderSerializer, 409: OpenApiResponse(description="The order is in a state that does not allow it.")}


class OrderPaidView(OrderMoveView):
    @extend_schema(operation_id="markExchangeOrderPaid", tags=["Exchange"], request=None, responses=_MOVED)
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response | HttpResponse:
        """The customer's payment is in."""
        return self.move(request, pk)


class OrderCancelView(OrderMoveView):
    to = OrderState.CANCELLED

    @extend_schema(operation_id="cancelExchangeOrder", tags=["Exchange"], request=None, responses=_MOVED)
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response | HttpResponse:
        """Cancel an order that is not paid out."""
        return self.move(request, pk)
