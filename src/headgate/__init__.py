"""Cooperative HTTP traffic control for both ends of a connection.

Every mechanism here answers one question, "when may this request go?", with an instant: see `headgate.release`.

The names that most programs need are here, each imported when it is asked for; everything else is in the package that
it belongs to, such as `headgate.agent.httpx` for the clients and transports of polite agents.
"""

from headgate.version import VERSION

TYPE_CHECKING = False  # a type checker takes it for true; `typing` takes long to import
if TYPE_CHECKING:
    from headgate.agent import Courtesy as Courtesy
    from headgate.agent import SharedThrottle as SharedThrottle
    from headgate.bundle import BundleWriter as BundleWriter
    from headgate.bundle import open_bundle as open_bundle
    from headgate.errors import HeadgateError as HeadgateError
    from headgate.errors import RetryLater as RetryLater
    from headgate.limit import ConcurrencyLimit as ConcurrencyLimit
    from headgate.limit import ConcurrencySettings as ConcurrencySettings
    from headgate.limit import Domain as Domain
    from headgate.limit import Gatekeeper as Gatekeeper
    from headgate.limit import Rule as Rule
    from headgate.origin.asgi import GatekeeperMiddleware as GatekeeperMiddleware

__version__ = VERSION

_HOMES = {
    "BundleWriter": "headgate.bundle",
    "ConcurrencyLimit": "headgate.limit",
    "ConcurrencySettings": "headgate.limit",
    "Courtesy": "headgate.agent",
    "Domain": "headgate.limit",
    "Gatekeeper": "headgate.limit",
    "GatekeeperMiddleware": "headgate.origin.asgi",
    "HeadgateError": "headgate.errors",
    "RetryLater": "headgate.errors",
    "Rule": "headgate.limit",
    "SharedThrottle": "headgate.agent",
    "open_bundle": "headgate.bundle",
}
"""The module of each name."""

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 - they are strings


def __getattr__(name: str) -> object:
    """Import a name from where it is."""
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
