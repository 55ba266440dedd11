"""Media types: which one a response has, and which of those on offer a client prefers.

Of a response only the essence is read, `type/subtype` in lower case, by the Fetch standard's "extract a MIME type"
(fetch.spec.whatwg.org, section 2.2.2). Parameters are ignored: a malformed one does not make a MIME type a failure
(mimesniff.spec.whatwg.org, section 4.4, step 11). `Accept` and other lists with weights are those of RFC 9110, section
12.
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


def parse_weights(field: bytes) -> dict[bytes, float]:
    """Return the weight of each member of a list, by the member in lower case, in the field's order.

    Weights are from 0.0 (not acceptable) to 1.0, and parameters other than `q` are ignored (RFC 9110, section 12.4.2).
    A malformed member is ignored, a malformed `q` counts as 1; a repeated member has its greatest weight.
    """
    found: dict[bytes, float] = {}
    for member in field.lower().split(b","):
        name, _, parameters = member.partition(b";")
        if name := name.strip():
            found[name] = max(found.get(name, 0.0), _weight(parameters) if parameters else 1.0)
    return found


def quality(accept: bytes, media_type: bytes) -> float:
    """Return the weight of `media_type` in `accept`, from 0.0 (not acceptable) to 1.0.

    The most specific range that covers the type decides: the type itself, then `type/*`, then `*/*`.
    """
    ranges, wanted = parse_weights(accept), media_type.lower()
    any_subtype = wanted.partition(b"/")[0] + b"/*"
    return ranges.get(wanted, ranges.get(any_subtype, ranges.get(b"*/*", 0.0)))


def _weight(parameters: bytes) -> float:
    """Read `q`, in lower case, among the parameters of one member: 0.0 to 1.0 (RFC 9110, section 12.4.2)."""
    for parameter in parameters.split(b";"):
        name, _, value = parameter.partition(b"=")
        if name.strip() == b"q":
            digits = value.strip()
            if digits.replace(b".", b"", 1).isdigit():
                return min(float(digits), 1.0)
    return 1.0
