"""Use cases that compute with evidence, for callers who see it masked. The rule is in tenants.masking.reading."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from tenants.masking import reading
from tenants.masking.reading import Reading, UnknownMark

UNKNOWN_MARK = "unknown_mark"


def unknown(error: UnknownMark) -> ValidationError:
    """What is told of a mark that its sender was not shown."""
    return ValidationError(
        _("%(mark)s stands for a value that you may not see, and that is not here. Take it out."),
        code=UNKNOWN_MARK,
        params={"mark": error.mark},
    )


def is_unknown_mark(error: ValidationError) -> bool:
    """Was something refused for a mark alone? A column refuses what its form let through."""
    if hasattr(error, "error_dict"):
        return all(one.code == UNKNOWN_MARK for found in error.error_dict.values() for one in found)
    return all(one.code == UNKNOWN_MARK for one in error.error_list)


def json_sent(field: str, text: str) -> str:
    """JSON text that came in, with what stands behind its marks. Raises ValidationError, for `field`."""
    try:
        return reading.put_back(text)
    except UnknownMark as error:
        raise ValidationError({field: unknown(error)}) from error


def prose_sent(text: str) -> str:
    """The same of text that is no JSON; marks that are not known stay."""
    return reading.put_back_prose(text)


@contextmanager
def on_stored() -> Iterator[None]:
    """Evidence is read as it is kept. Nothing that was read so may be shown: what is refused inside is told in words
    for the reader outside."""
    reader = reading.current()
    with reading.as_stored():
        try:
            yield
        except ValidationError as error:
            if reader is None:
                raise
            raise _told(error, reader) from None


def _told(error: ValidationError, reader: Reading) -> ValidationError:
    if hasattr(error, "error_dict"):
        fields = error.error_dict.items()
        return ValidationError({name: [_told(one, reader) for one in found] for name, found in fields})
    instead = _("What is masked in it does not fit here.")
    found = [(reader.refusal(" ".join(one.messages), instead), one.code) for one in error.error_list]
    return ValidationError([ValidationError(words, code=code) for words, code in found])
