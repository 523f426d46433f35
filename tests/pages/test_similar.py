"""The page of similar calls."""

from quality.review.items import item_of_call
from quality.review.labelling import record_label


def test_each_call_says_why_it_is_there(browse, make_call, inside):
    operator = browse("operator")
    call = make_call()
    near = make_call(args='{"city": "Zürich", "unit":"fahrenheit"}')
    make_call(args='{"city": "Zürich", "unit":"celsius"}', is_error=True, error="No city 12")
    with inside():
        for one in (call, near):
            record_label(item=item_of_call(one.pk), reviewer=operator.member.user, label="wrong_tool")
    page = operator.get(f"/t/acme/calls/{call.pk}/similar/")
    assert (
        "same tool · same fault: get_weather called instead of another tool, or none · 1 of 2 arguments equal"
        in page.text
    )
    assert "same tool · 2 of 2 arguments equal" in page.text
    assert "among all 2 of this tool" in page.text
    assert page.text.count("data-select-row") == 2
    only = operator.get(f"/t/acme/calls/{call.pk}/similar/?by=fault")
    assert only.text.count("data-select-row") == 1
    assert operator.get(f"/t/acme/calls/{call.pk}/similar/?unlabelled=1").text.count("data-select-row") == 1


def test_it_is_one_key_from_the_call(browse, make_call, outsider):
    call = make_call()
    viewer = browse("viewer")
    address = f"/t/acme/calls/{call.pk}/similar/"
    for page in (f"/t/acme/calls/{call.pk}/", f"/t/acme/review/?call={call.pk}"):
        assert f'href="{address}"' in viewer.get(page).text
    shown = viewer.get(address)
    assert "Nothing similar" in shown.text
    assert "data-select-row" not in shown.text
    assert outsider.get(address).status_code == 404
    assert viewer.get("/t/acme/calls/999999/similar/").status_code == 404
