"""Where a value stands that an error is about."""

from collections.abc import Iterator
from contextlib import contextmanager

from headgate.errors import ConfigurationError


@contextmanager
def naming(place: str) -> Iterator[None]:
    """Put the name of a flag, key or domain before the text of a `ConfigurationError` that is raised inside."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"{place}: {error}") from None
