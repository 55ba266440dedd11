"""Laws by name: those of the package, and classes of your own."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from headgate.errors import ConfigurationError, fail_if
from lab.chance import Draw
from lab.events.bus_law import GatekeeperLaw
from lab.events.concurrency_law import ConcurrencyLaw
from lab.events.laws import FixedLimit, Law, NoLimit

LAWS: Final[Mapping[str, Any]] = {
    "none": NoLimit,
    "fixed": FixedLimit,
    "concurrency": ConcurrencyLaw,
    "gatekeepers": GatekeeperLaw,
}
"""The laws of the package."""


def make_law(name: str, settings: Mapping[str, Any], draw: Draw, *, folder: str = "") -> Law:
    """Create a law of the lab, or `file.py:Class` relative to `folder`.

    With the key `law` in its settings, it is that law under another name. Raises `ConfigurationError` for an unknown
    law, and for settings that it does not have or allow.
    """
    settings = dict(settings)
    kind = _find(settings.pop("law", name), folder)
    try:
        law: Law = kind(msgspec.convert(settings, kind.Settings), draw)
    except (msgspec.ValidationError, ConfigurationError) as error:
        raise ConfigurationError(f"laws.{name}: {error}") from None
    return law


def _find(name: str, folder: str) -> Any:
    file, colon, class_name = name.rpartition(":")
    if not colon:
        fail_if(name not in LAWS, f"unknown law {name!r}; expected one of {', '.join(LAWS)}, or file.py:Class")
        return LAWS[name]
    specification = importlib.util.spec_from_file_location(f"lab_user_{Path(file).stem}", Path(folder, file))
    if specification is None or specification.loader is None or not Path(folder, file).is_file():
        raise ConfigurationError(f"law {name!r}: expected file.py:Class, a file in {folder}")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    fail_if(not hasattr(module, class_name), f"law {name!r}: no class {class_name!r} in {file}")
    return getattr(module, class_name)
