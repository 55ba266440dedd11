"""The media type of a response: the Fetch standard's "extract a MIME type" (fetch.spec.whatwg.org, section 2.2.2).

Only the essence is read, `type/subtype` in lower case. Parameters are ignored: a malformed one does not make a MIME
type a failure (mimesniff.spec.whatwg.org, section 4.4, step 11).
"""

import re
from collections.abc import Iterable

from headgate.http.fields import TOKEN, split_list

_mime_type = re.compile(rf"[\t\n\r ]*+({TOKEN}/{TOKEN})[\t\n\r ]*+(?:;|\Z)").match


def parse_essence(value: str) -> str | None:
    """Return the essence of one MIME type; None where it is a failure."""
    match = _mime_type(value)
    return match[1].lower() if match else None


def extract_essence(lines: Iterable[str]) -> str | None:
    """Return the essence of the MIME type in the lines of `Content-Type`; None where they have none.

    The last that parses counts; `*/*` is ignored.
    """
    essences = [essence for member in split_list(lines) if (essence := parse_essence(member)) not in {None, "*/*"}]
    return essences[-1] if essences else None
