"""`datetime`: lists of datetimes, encoded as ISO 8601 (C7)."""

import re
from datetime import date, datetime
from typing import Any

import numpy as np

from app.codecs.base import register_input_codec
from app.codecs.strings import TextCodec, as_list, text_list, text_tensor
from app.protocol.errors import InvalidInput, format_value
from app.protocol.tensors import RequestInput, Tensor

# fromisoformat() accepts more: any separator between date and time, and fractions of a minute. It
# also drops digits after the sixth.
_ISO_8601 = re.compile(
    r"(\d{4}-\d\d-\d\d|\d{8}|\d{4}-W\d\d(-\d)?|\d{4}W\d{2,3})"
    r"([Tt ]\d\d(:?\d\d(:?\d\d([.,](?P<fraction>\d+))?)?)?(Z|z|[+-]\d\d(:?\d\d(:?\d\d)?)?)?)?",
    re.ASCII,
)
# Units of NumPy whose text has no seconds: years, months, weeks, days, hours and minutes.
_UNITS_ABOVE_SECONDS = ("Y", "M", "W", "D", "h", "m")


def format_datetime(moment: Any, missing: str | None = None) -> str:
    """Return the ISO 8601 text of a date or datetime of Python, pandas or NumPy.

    `moment` can also be such text already, as str or bytes. For None, NaN and NaT, return the text
    `missing` (C13). Raise InvalidInput for them if `missing` is None, and for all other values.
    """
    # NaN and NaT do not equal themselves.
    if missing is not None and (moment is None or moment == missing or moment != moment):
        return missing
    if isinstance(moment, bytes):
        (moment,) = text_list([moment])
    if isinstance(moment, str):
        parse_datetime(moment)  # raises InvalidInput if the text is invalid
        return moment

    text = ""
    if isinstance(moment, np.datetime64):
        text = _format_datetime64(moment)
    elif isinstance(moment, date):  # also datetimes of Python and pandas
        text = moment.isoformat()
    # Not ISO 8601: "NaT", and years of five digits, which NumPy and pandas support.
    if not _ISO_8601.fullmatch(text):
        raise InvalidInput(subject="data", expected="a datetime", got=moment)
    return text


def _format_datetime64(moment: np.datetime64) -> str:
    unit, _ = np.datetime_data(moment.dtype)
    if unit in _UNITS_ABOVE_SECONDS:
        return str(moment.astype("datetime64[s]"))
    return str(moment)


def parse_datetime(text: str | None) -> datetime:
    """Parse a datetime. Raise InvalidInput if it is invalid or more precise than microseconds."""
    match = _ISO_8601.fullmatch(text or "")
    if match is None:
        raise _not_iso_8601(text)
    fraction = match["fraction"] or ""
    if fraction[6:].strip("0"):
        raise InvalidInput(subject="data", expected="at most 6 decimal places", got=text)
    try:
        return datetime.fromisoformat(match[0].upper())
    except ValueError:  # for example, February 30
        raise _not_iso_8601(text) from None


def _not_iso_8601(text: str | None) -> InvalidInput:
    return InvalidInput(subject="data", expected="a datetime in ISO 8601", got=format_value(text))


@register_input_codec
class DatetimeCodec(TextCodec):
    """Lists of datetimes with or without an offset."""

    ContentType = "datetime"
    TypeHint = list[datetime]

    @classmethod
    def texts(cls, tensor: Tensor) -> list[str | None]:
        """Return the elements as str, with None for missing values.

        An input can have them only if METADATA declares the text for them (C13). Otherwise, raise
        InvalidInput. An output can have them in any case.
        """
        texts = super().texts(tensor)
        if None in texts and isinstance(tensor, RequestInput) and tensor.missing is None:
            remedy = 'declare missing="" in METADATA, or send "NaT" for a column of a DataFrame'
            raise InvalidInput(
                subject="data", expected="datetimes in ISO 8601", got="null", remedy=remedy
            )
        return texts

    @classmethod
    def encode(cls, payload: Any, use_bytes: bool = True, **options: Any) -> tuple[str, np.ndarray]:
        """Encode datetimes or ISO 8601 text.

        The option `missing` is the text for None, NaN and NaT. Without it, raise InvalidInput for
        them (C13).
        """
        if isinstance(payload, np.ndarray) and payload.dtype.kind == "M":
            # as_list() would convert datetimes in nanoseconds to integers.
            payload = list(payload.ravel())
        missing = options.get("missing")
        texts = [format_datetime(element, missing) for element in as_list(payload)]
        return text_tensor(texts, use_bytes)

    @classmethod
    def decode(cls, tensor: Tensor) -> list[datetime | None]:
        values: list[datetime | None] = []
        for text in cls.texts(tensor):
            if text is None:
                values.append(None)
            else:
                values.append(parse_datetime(text))
        return values
