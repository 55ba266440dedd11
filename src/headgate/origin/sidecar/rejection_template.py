"""A rejection as a template, for a server that writes its own responses: with a mark in place of the seconds."""

from collections.abc import Iterator
from itertools import count

from headgate.limit import Accounting
from headgate.origin.response import Rejections, Response
from headgate.release import Status


def rejection_template(rejections: Rejections, domain: str, accept: bytes | None, *, mark: bytes) -> Response:
    """Return the rejection in `domain` for a value of Accept, without Content-Length."""

    def render(seconds: int) -> Response:
        return rejections(Accounting(domain, Status.REJECTED, b"", 0.0, float(seconds)), now=0.0, accept=accept)

    # A number that the response has only where it has the seconds.
    other = b"".join(_texts(render(1)))
    number = next(number for number in count(1_000_000_007) if b"%d" % number not in other)
    response = render(number)
    marked = [
        (name, value.replace(b"%d" % number, mark)) for name, value in response.fields if name != b"content-length"
    ]
    return Response(response.status, marked, response.body.replace(b"%d" % number, mark))


def _texts(response: Response) -> Iterator[bytes]:
    yield response.body
    for _, value in response.fields:
        yield value
