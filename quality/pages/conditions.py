"""The filter of a list as its page shows it: what of the address narrows the list, and each condition in words."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.http import QueryDict

type Words = Mapping[str, Mapping[str, Any]]


def conditions(data: QueryDict, names: Iterable[str]) -> QueryDict:
    """What of a query string is the filter, without empty fields: what links to the same rows carry."""
    query = QueryDict(mutable=True)
    for name in names:
        if values := [value for value in data.getlist(name) if value.strip()]:
            query.setlist(name, values)
    return query


def chips(query: QueryDict, names: Mapping[str, Any], words: Words) -> list[dict[str, str]]:
    """Each condition in words, with the query string that is left when it is taken away. `names` says what a parameter
    is called, `words` what its values are called."""
    found = []
    for name, called in names.items():
        for value in query.getlist(name):
            rest = query.copy()
            rest.setlist(name, [other for other in query.getlist(name) if other != value])
            shown = words.get(name, {}).get(value, value)
            found.append({"word": str(called), "value": str(shown), "without": rest.urlencode()})
    return found
