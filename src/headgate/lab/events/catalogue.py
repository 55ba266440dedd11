"""Laws by name: those of the package, and classes of your own."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headgate.errors import ConfigurationError
from headgate.lab.chance import Draw
from headgate.lab.events.bus_law import GatekeeperLaw
from headgate.lab.events.concurrency_law import ConcurrencyLaw
from headgate.lab.events.laws import FixedLimit, Law, NoLimit
from headgate.lab.events.naive_laws import Aimd, Gradient
from headgate.lab.scenario import Section
from headgate.lab.user_class import describe_error, is_user_class, load_user_class

LAWS: Final[Mapping[str, Any]] = {
    "none": NoLimit,
    "fixed": FixedLimit,
    "concurrency": ConcurrencyLaw,
    "aimd": Aimd,
    "gradient": Gradient,
    "gatekeepers": GatekeeperLaw,
}
"""The laws of the package."""


def make_law(name: str, settings: Mapping[str, Any], draw: Draw, *, folder: str = "") -> Law:
    """Create a law of the package, or `module:Class`, or `file.py:Class` relative to `folder`.

    With the key `law` in its settings, it is that law under another name. Raises `ConfigurationError` for an unknown
    law, and for settings that it does not have or allow.
    """
    settings = dict(settings)
    kind = _find(settings.pop("law", name), folder)
    if not (isinstance(given := getattr(kind, "Settings", None), type) and issubclass(given, Section)):
        raise ConfigurationError(f"law {name!r}: the class needs its settings as `Settings`, a subclass of Section")
    try:
        law: Law = kind(msgspec.convert(settings, kind.Settings), draw)
    except (msgspec.ValidationError, ConfigurationError) as error:
        raise ConfigurationError(f"laws.{name}: {str(error)[:1].lower()}{str(error)[1:]}") from None
    except (Exception, SystemExit) as error:  # of a user's class
        raise ConfigurationError(f"law {name!r}: {describe_error(error)}") from None
    return law


def _find(name: str, folder: str) -> Any:
    if is_user_class(name):
        return load_user_class(name, folder)
    if name not in LAWS:
        raise ConfigurationError(
            f"unknown law {name!r}; expected one of {', '.join(LAWS)}, or module:Class or file.py:Class"
        )
    return LAWS[name]
