"""Options of one request for headgate, wherever its library has a place for them.

One option is known so far: `{"interactive": True}` is for a request that a user waits for.
"""

from collections.abc import Mapping

from headgate.errors import ConfigurationError


def is_interactive(options: object) -> bool:
    """Return whether the options of a request, None where it has none, say that a user waits for it.

    Raises `ConfigurationError` for invalid options: a request that would ignore them is better not sent.
    """
    if options is None:
        return False
    if isinstance(options, Mapping) and not options.keys() - {"interactive"}:
        interactive = options.get("interactive", False)
        if isinstance(interactive, bool):
            return interactive
    raise ConfigurationError(
        f"invalid headgate options of a request {options!r}; expected {{'interactive': True}} or False"
    )
