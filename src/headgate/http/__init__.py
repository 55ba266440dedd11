"""What several packages need of HTTP: URLs and origins, media types, dates and freshness, `Accept`, `Retry-After`,
seconds in fields, structured-field strings, tokens; and in `h1` the grammar of HTTP/1 messages.

All of it is pure. Functions that read field values never raise, whatever the value.
"""

from headgate.http.accept import negotiate, quality
from headgate.http.seconds import whole_seconds
from headgate.http.structured import parameter, sf_integer, sf_string
from headgate.http.token import is_token

__all__ = ["is_token", "negotiate", "parameter", "quality", "sf_integer", "sf_string", "whole_seconds"]
