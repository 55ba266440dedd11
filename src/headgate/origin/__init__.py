"""The origin's side of the limit: middleware, gateway, and what they share.

Import the middleware from its own module, `headgate.origin.asgi` or `headgate.origin.wsgi`, so that a server loads
only the half it speaks.
"""

from headgate.origin.head import Head
from headgate.origin.identify import Identify, client_address, header, parse_identify
from headgate.origin.rejection import Rejections, Response, rejection
from headgate.origin.routes import Route, Routes

__all__ = [
    "Head",
    "Identify",
    "Rejections",
    "Response",
    "Route",
    "Routes",
    "client_address",
    "header",
    "parse_identify",
    "rejection",
]
