"""The HTTP words that several rooms share: URLs and origins, media types, dates and freshness, `Accept`, `Retry-After`,
seconds in fields, structured-field strings, tokens.

Pure text work on field values. Nothing here knows a socket, a clock or a limit; reading never raises on what a
stranger sent.
"""

from headgate.http.accept import negotiate, quality
from headgate.http.seconds import whole_seconds
from headgate.http.structured import parameter, sf_integer, sf_string
from headgate.http.token import is_token

__all__ = ["is_token", "negotiate", "parameter", "quality", "sf_integer", "sf_string", "whole_seconds"]
