"""Every check of the final reply."""

from decimal import Decimal
from typing import Any

import pytest

from quality.cases.judge import judge
from quality.cases.languages import language_of
from quality.cases.replies import numbers_in
from quality.cases.sample import Verdict
from tests.cases.samples import call, calls, codes, sample, verdict


def reply(*must: Any, must_not: Any = (), **more: Any) -> dict[str, Any]:
    return {"version": 1, "reply": {"must": list(must), "must_not": list(must_not), **more}}


TABLE: list[tuple[dict[str, Any], list[str], list[str]]] = [
    ({"contains": "7731"}, ["Order 7731 is here.", "77310"], ["Order 7713", ""]),
    ({"contains": "Rome"}, ["in Rome"], ["in rome"]),
    ({"contains": "rome  today", "fold": True}, ["In ROME\ntoday"], ["Rome tomorrow"]),
    ({"contains": "can't"}, ["I can’t", "I can't"], ["I cannot"]),
    ({"contains": 'say "yes"'}, ["say “yes”", "say «yes»"], ["say yes"]),
    ({"regex": "refund(ed)?"}, ["We refunded it.", "a refund"], ["We paid it back."]),
    ({"regex": "(?i)don’t"}, ["Don't", "DON’T"], ["do not"]),
    ({"regex": "^Done"}, ["Done."], ["It is Done"]),
    ({"text": {"of": "Done.", "case": "fold", "punct": "ignore"}}, ["done", "DONE!"], ["Done now."]),
    (
        {"number": {"of": 1299}},
        ["It costs 1,299 euro", "1.299", "1 299 €", "1299.00", "1'299"],
        ["1,299.50", "12.99", "-1299", "none"],
    ),
    ({"number": {"of": 3.14, "abs": 0.01}}, ["about 3.15", "3,14"], ["3.2", "314"]),
    ({"number": {"of": -5}}, ["It is -5 °C", "−5"], ["5", "3-5", "May-5"]),
    ({"number": 7}, ["7 days"], ["77", "7.5"]),
    (
        {"language": "de"},
        ["Ihre Bestellung ist auf dem Weg und wird morgen geliefert."],
        ["Your order is on the way and will be delivered."],
    ),
    ({"language": "en"}, ["Your order is on the way."], ["Votre commande est en route pour vous."]),
    ({"language": "ja"}, ["ご注文は明日届きます。"], ["您的订单明天送达。", "Ваш заказ будет завтра."]),
    ({"language": "zh"}, ["您的订单明天送达。"], ["ご注文は明日届きます。"]),
    ({"language": "ru"}, ["Ваш заказ будет завтра."], ["Ваше замовлення їде завтра і буде"]),
]


@pytest.mark.parametrize(("check", "text"), [(check, text) for check, good, _ in TABLE for text in good])
def test_holds(check: dict[str, Any], text: str) -> None:
    assert verdict(reply(check), sample(reply=text)) is Verdict.PASS
    assert codes(judge(reply(must_not=[check]), sample(reply=text))) == ["reply_has"]


@pytest.mark.parametrize(("check", "text"), [(check, text) for check, _, bad in TABLE for text in bad])
def test_does_not_hold(check: dict[str, Any], text: str) -> None:
    assert codes(judge(reply(check), sample(reply=text))) == ["reply_lacks"]
    assert verdict(reply(must_not=[check]), sample(reply=text)) is Verdict.PASS


@pytest.mark.parametrize(
    ("served", "path", "text", "holds"),
    [
        ({"eta": "Tuesday"}, "/eta", "It comes on tuesday.", True),
        ({"eta": "Tuesday"}, "/eta", "Tomorrow.", False),
        ({"n": 1299.5}, "/n", "That is 1,299.50 euro", True),
        ({"n": 1299.5}, "/n", "That is 1299 euro", False),
        ({"id": "77"}, "/id", "order 7731", False),
        ({"id": "77"}, "/id", "order 77.", True),
        ({"a": [{"b": "x y"}]}, "/a/0/b", "x  Y", True),
        ({"a": 1}, "/b", "1", False),
        ({"a": True}, "/a", "true", False),
        ({"name": "O’Neill"}, "/name", "Mr O'Neill", True),
        ("sunny", "", "It is Sunny.", True),
        ({"a": ""}, "/a", "x", False),
    ],
)
@pytest.mark.parametrize("source", [{"result": 0}, {"tool": "get_*"}])
def test_uses_what_a_tool_returned(served: Any, path: str, text: str, holds: bool, source: dict[str, Any]) -> None:
    expectation = {**calls("contains", "get_order"), **reply({"uses_result": {**source, "path": path}})}
    given = sample(call("other", served={"x": 1}), call("get_order", served=served), reply=text)
    assert judge(expectation, given).passed is holds


def test_a_reply_that_is_not_there_fails_what_it_must_have() -> None:
    assert codes(judge(reply({"contains": "x"}), sample(reply=None))) == ["no_reply"]
    assert verdict(reply(must_not=[{"contains": "x"}]), sample(reply=None)) is Verdict.PASS


def test_a_language_that_cannot_be_told_is_an_error_and_no_failure() -> None:
    judgement = judge(reply({"language": "de"}), sample(reply="OK"))
    assert (judgement.verdict, codes(judgement)) == (Verdict.ERROR, ["check_undecided"])


def test_a_model_never_overrides_a_check() -> None:
    asked: list[Any] = []
    expectation = reply({"contains": "sorry"}, judge={"rubric": "is polite"})
    assert verdict(expectation, sample(reply="no"), ask=asked.append) is Verdict.FAIL
    assert not asked
    assert verdict(expectation, sample(reply="sorry"), ask=lambda _: True) is Verdict.PASS
    assert codes(judge(expectation, sample(reply="sorry"), ask=lambda _: False)) == ["reply_judged_wrong"]
    assert codes(judge(expectation, sample(reply="sorry"))) == ["not_judged"]


def test_numbers_of_a_text_in_every_usual_reading() -> None:
    found = set(numbers_in("1,299 and 3.5, 10 000 or 7731"))
    assert found == {1299, Decimal("1.299"), Decimal("3.5"), 10, 0, 10_000, 7731}
    assert not list(numbers_in("none"))


@pytest.mark.parametrize("text", ["", "123 456", "OK", "!!!", "a"])
def test_short_texts_tell_no_language(text: str) -> None:
    assert language_of(text) is None
