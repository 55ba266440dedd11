"""The bundles of a configuration, opened: what a gate publishes and answers rejected requests from.

What reads bundles is imported with the first of them: a gate without any starts without it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from headgate.config import BundleSection, Configuration
from headgate.errors import BundleError, ConfigurationError
from headgate.origin.routes import plain_path

if TYPE_CHECKING:
    from headgate.origin.bundle import Publication, Shelf

__all__ = ["broken", "shelf_of"]


def shelf_of(
    tree: Configuration, old: "Shelf | None" = None, *, complain: Callable[[str], None] = lambda _sentence: None
) -> "Shelf | None":
    """Open the bundles of `tree`, but for files that `old` has as they are; None when there are none.

    Each complains by itself when its file changes and is no bundle any more. Raises `ConfigurationError` for one that
    is none now, or that would do nothing.
    """
    if not tree.bundle:
        return None
    from headgate.origin.bundle import Lifeboat, Shelf

    known = {(one.path, one.profile): one for one in (old.publications if old is not None else ()) if one.is_current}
    published: dict[bytes, Publication] = {}
    lifeboats = []
    for index, section in enumerate(tree.bundle):
        where = f"bundle[{index}]"
        _check(section, where)
        publication = known.get((section.file, section.profile)) or _opened(section, where, complain)
        if section.path.encode() in published:
            raise ConfigurationError(f"{where}.path: {section.path!r} is taken; each bundle has its own path")
        if section.path:
            published[section.path.encode()] = publication
        if section.lifeboat:
            lifeboats.append(Lifeboat(publication, section.hosts))
    return Shelf(published, lifeboats)


def broken(error: BundleError | OSError, path: str, profile: str) -> str:
    """Say why the file at `path` cannot be served, and what could be done about it."""
    if isinstance(error, OSError):
        return f"{path}: {error.strerror.lower() if error.strerror else error}; name a readable file"
    said = f"{path} is no bundle that can be served: {error.reason} at byte {error.offset} ({error.step})"
    if profile == "strict" and error.kind == "format":
        from headgate.origin.bundle import Edition

        try:
            Edition(path, profile="compat")
        except (BundleError, OSError):
            return said
        return f"{said}; profile compat takes it, as it does what the published tools write"
    return said


def _opened(section: BundleSection, where: str, complain: Callable[[str], None]) -> "Publication":
    from headgate.origin.bundle import Publication

    try:
        return Publication(section.file, profile=section.profile, complain=complain)
    except (BundleError, OSError) as error:
        raise ConfigurationError(f"{where}.file: {broken(error, section.file, section.profile)}") from None


def _check(section: BundleSection, where: str) -> None:
    path = section.path
    plain = plain_path(path.encode("utf-8", "replace")).decode("utf-8", "replace")
    if path and (path != plain or path[0] != "/" or "?" in path or "#" in path):
        instead = "/" + plain.partition("?")[0].partition("#")[0].lstrip("/")
        raise ConfigurationError(f"{where}.path: {path!r} is no path, decoded and plain; try {instead!r}")
    if not path and not section.lifeboat:
        raise ConfigurationError(f"{where}: it does nothing; give it a path to publish it at, or lifeboat = true")
    if section.hosts and not section.lifeboat:
        raise ConfigurationError(f"{where}.hosts: only a lifeboat asks for hosts; add lifeboat = true beside it")
    for host in section.hosts:
        if not host or any(character in host for character in "/@?#, ") or not host.isascii():
            raise ConfigurationError(f"{where}.hosts: {host!r} is no host; try 'www.example.org', or '*' for all")
