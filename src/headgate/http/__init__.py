"""HTTP parts that several packages share: URLs and origins, media types, dates and freshness, conditional requests,
`Accept`, `Retry-After`, the grammar of field values; and in `h1` the grammar of HTTP/1 messages.

All of it is pure. Functions that parse field values never raise.
"""

from headgate.http.date import whole_seconds
from headgate.http.fields import is_token, parameter, sf_integer, sf_string
from headgate.http.media_type import negotiate, quality

__all__ = ["is_token", "negotiate", "parameter", "quality", "sf_integer", "sf_string", "whole_seconds"]
