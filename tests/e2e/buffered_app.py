"""A WSGI application for slow clients: it reads whole bodies, and its large response is 2 MiB."""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

LARGE = bytes(range(256)) * 8_192


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer with the digest of the request's body, or with the large response."""
    path, body = environ["PATH_INFO"], environ["wsgi.input"].read()
    content = LARGE if path == "/large" else hashlib.sha256(body).hexdigest().encode()
    start_response("200 OK", [("Content-Length", str(len(content)))])
    return [content]
