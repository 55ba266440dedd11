"""The origin's side of rate limiting: middleware, gateway, and what they share.

Import the middleware from its own module, `headgate.origin.asgi` or `headgate.origin.wsgi`, so that a server loads
only the one it uses.
"""

from headgate.http.conditions import Conditions
from headgate.origin.identify import Identify, client_address, header, parse_identify
from headgate.origin.request_info import RequestInfo
from headgate.origin.response import Rejections, Response
from headgate.origin.routes import Route, Routes

__all__ = [
    "Conditions",
    "Identify",
    "Rejections",
    "RequestInfo",
    "Response",
    "Route",
    "Routes",
    "client_address",
    "header",
    "parse_identify",
]
