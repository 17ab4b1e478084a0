"""`datetime`: lists of datetimes, encoded as ISO 8601 (C7)."""

import re
from datetime import date, datetime
from typing import Any

import numpy as np

from app.codecs.base import register_input_codec
from app.codecs.strings import TextCodec, as_list, text_list, text_tensor
from app.protocol.errors import InvalidInput, format_value
from app.protocol.tensors import RequestInput, Tensor

# fromisoformat() accepts more: any separator between date and time, and fractions of a minute. It also drops digits
# after the sixth.
ISO = re.compile(
    r"(\d{4}-\d\d-\d\d|\d{8}|\d{4}-W\d\d(-\d)?|\d{4}W\d{2,3})"
    r"([Tt ]\d\d(:?\d\d(:?\d\d([.,](?P<fraction>\d+))?)?)?(Z|z|[+-]\d\d(:?\d\d(:?\d\d)?)?)?)?",
    re.ASCII,
)


def format_datetime(moment: Any, missing: str | None = None) -> str:
    """Format a date or datetime of Python, pandas or NumPy, or ISO 8601 text. A gap needs the text `missing` (C13)."""
    if missing is not None and (moment is None or moment == missing or moment != moment):
        return missing
    if isinstance(moment, bytes):
        moment = text_list([moment])[0]
    if isinstance(moment, str):
        parse_datetime(moment)
        return moment
    text = ""
    if isinstance(moment, np.datetime64) and not np.isnat(moment):
        coarse = np.datetime_data(moment.dtype)[0] in ("Y", "M", "W", "D", "h", "m")
        text = str(moment.astype("M8[s]") if coarse else moment)
    elif (
        isinstance(moment, date) and moment == moment
    ):  # NaT is a datetime that does not equal itself
        text = moment.isoformat()
    if ISO.fullmatch(text):  # NumPy and pandas also support years of five digits
        return text
    raise InvalidInput(subject="data", expected="a datetime", got=moment)


def parse_datetime(text: str | None) -> datetime:
    """Parse a datetime. Raise InvalidInput if it is invalid or more precise than microseconds."""
    match = ISO.fullmatch(text or "")
    if match and (match["fraction"] or "")[6:].strip("0"):
        raise InvalidInput(subject="data", expected="at most 6 decimal places", got=text)
    try:
        if match:
            return datetime.fromisoformat(match[0].upper())
    except ValueError:  # for example, February 30
        pass
    raise InvalidInput(subject="data", expected="a datetime in ISO 8601", got=format_value(text))


@register_input_codec
class DatetimeCodec(TextCodec):
    """Lists of datetimes with or without an offset."""

    ContentType = "datetime"
    TypeHint = list[datetime]

    @classmethod
    def texts(cls, tensor: Tensor) -> list[str | None]:
        texts = super().texts(tensor)
        if None in texts and isinstance(tensor, RequestInput) and tensor.missing is None:
            remedy = 'declare missing="" in METADATA, or send "NaT" for a column of a DataFrame'
            raise InvalidInput(
                subject="data", expected="datetimes in ISO 8601", got="null", remedy=remedy
            )
        return texts

    @classmethod
    def encode(cls, payload: Any, use_bytes: bool = True, **options: Any) -> tuple[str, np.ndarray]:
        """Encode datetimes or ISO 8601 text. None, NaN and NaT need the option `missing`, the text for them (C13)."""
        if isinstance(payload, np.ndarray) and payload.dtype.kind == "M":
            payload = list(payload.ravel())
        return text_tensor(
            [format_datetime(each, options.get("missing")) for each in as_list(payload)], use_bytes
        )

    @classmethod
    def decode(cls, tensor: Tensor) -> list[datetime | None]:
        return [None if each is None else parse_datetime(each) for each in cls.texts(tensor)]
