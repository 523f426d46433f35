"""Any sequence of labels and undos by two reviewers ends where a few lines of Python say it must."""

from collections.abc import Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quality.models import Label, Review
from quality.review.items import item_of_call
from quality.review.labelling import NothingToUndo, current_labels, history, record_label, undo, version_of
from tenants.models import Membership, Tenant
from tenants.scope import tenant_scope
from tests.factories import ToolCallFactory

steps = st.lists(
    st.tuples(st.sampled_from(["Ada", "Bob"]), st.sampled_from([*Label.values, "undo", "undo or redo"])), max_size=12
)


class Model:
    """Each reviewer's labels so far, the current one last, and whether the last step was an undo."""

    def __init__(self) -> None:
        self.states: dict[str, list[str | None]] = {"Ada": [None], "Bob": [None]}
        self.undone = {"Ada": False, "Bob": False}
        self.number = 0

    def step(self, name: str, what: str) -> None:
        states = self.states[name]
        if what.startswith("undo"):
            if len(states) == 1 or (what == "undo" and self.undone[name]):
                return
            states.append(states[-2])
            self.undone[name] = True
        elif states[-1] == what:
            return
        else:
            states.append(what)
            self.undone[name] = False
        self.number += 1

    def labels(self) -> dict[str, str]:
        return {name: states[-1] for name, states in self.states.items() if states[-1]}


def test_histories_end_where_they_must(tenant: Tenant, member: Callable[..., Membership]) -> None:
    people = {name: member(user__name=name).user for name in ("Ada", "Bob")}

    @settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(steps)
    def play(taken: list[tuple[str, str]]) -> None:
        model = Model()
        with tenant_scope(tenant):
            item = item_of_call(ToolCallFactory().pk)
            for name, what in taken:
                model.step(name, what)
                seen = version_of(item)
                try:
                    if what == "undo":
                        undo(item=item, reviewer=people[name])
                    elif what == "undo or redo":
                        undo(item=item, reviewer=people[name], seen_version=seen)
                    else:
                        record_label(item=item, reviewer=people[name], label=what, seen_version=seen)
                except NothingToUndo:
                    assert model.states[name] == [None]
            assert {str(label.reviewer): label.label for label in current_labels(item)} == model.labels()
            assert [event.version for event in history(item)] == list(range(1, model.number + 1))
            review = Review.objects.filter(**item.key).first()
            assert (review.num_labels if review else 0) == len(model.labels())
            assert (review.version if review else 0) == model.number

    play()
