"""Loads the bundles of a configuration, which a gate publishes and from which it answers rejected requests.

The modules that read bundles are imported when there is one.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from headgate.config import BundleSection, Configuration
from headgate.errors import BundleError, ConfigurationError
from headgate.origin.routes import plain_path

if TYPE_CHECKING:
    from headgate.origin.bundle import GateBundles, ReloadingBundle


def load_bundles(
    tree: Configuration, old: "GateBundles | None" = None, *, complain: Callable[[str], None] = lambda _message: None
) -> "GateBundles | None":
    """Load the bundles of `tree`, except files that `old` has loaded and that are unchanged; None without bundles.

    `complain` is called when the file of one is later replaced by an invalid one. Raises `ConfigurationError` for an
    invalid bundle, and for a section that has no effect.
    """
    if not tree.bundle:
        return None
    from headgate.origin.bundle import GateBundles, Lifeboat

    known = {(one.path, one.profile): one for one in (old.bundles if old is not None else ()) if one.is_current}
    published: dict[bytes, ReloadingBundle] = {}
    lifeboats = []
    for index, section in enumerate(tree.bundle):
        where = f"bundle[{index}]"
        _check(section, where)
        bundle = known.get((section.file, section.profile)) or _load(section, where, complain)
        if section.path.encode() in published:
            raise ConfigurationError(f"{where}.path: {section.path!r} is taken; each bundle has its own path")
        if section.path:
            published[section.path.encode()] = bundle
        if section.lifeboat:
            lifeboats.append(Lifeboat(bundle, section.hosts))
    return GateBundles(published, lifeboats)


def _explain(error: BundleError | OSError, path: str, profile: str) -> str:
    """Return why the file at `path` cannot be served, and what to do about it."""
    if isinstance(error, OSError):
        return f"{path}: {error.strerror.lower() if error.strerror else error}; name a readable file"
    message = f"{path} is not a valid bundle: {error.reason} at byte {error.offset} ({error.step})"
    if profile == "strict" and error.kind == "format":
        from headgate.origin.bundle import BundleSnapshot

        try:
            BundleSnapshot(path, profile="compat")
        except (BundleError, OSError):
            return message
        return f"{message}; profile compat accepts it, as it accepts what the published tools write"
    return message


def _load(section: BundleSection, where: str, complain: Callable[[str], None]) -> "ReloadingBundle":
    from headgate.origin.bundle import ReloadingBundle

    try:
        return ReloadingBundle(section.file, profile=section.profile, complain=complain)
    except (BundleError, OSError) as error:
        raise ConfigurationError(f"{where}.file: {_explain(error, section.file, section.profile)}") from None


def _check(section: BundleSection, where: str) -> None:
    path = section.path
    plain = plain_path(path.encode("utf-8", "replace")).decode("utf-8", "replace")
    if path and (path != plain or path[0] != "/" or "?" in path or "#" in path):
        instead = "/" + plain.partition("?")[0].partition("#")[0].lstrip("/")
        raise ConfigurationError(f"{where}.path: {path!r} is not a path in decoded and normal form; try {instead!r}")
    if not path and not section.lifeboat:
        raise ConfigurationError(f"{where}: it has no effect; add a path to publish it at, or lifeboat = true")
    if section.hosts and not section.lifeboat:
        raise ConfigurationError(f"{where}.hosts: hosts are for a lifeboat; add lifeboat = true")
    for host in section.hosts:
        if not host or any(character in host for character in "/@?#, ") or not host.isascii():
            raise ConfigurationError(f"{where}.hosts: {host!r} is not a host; try 'www.example.org', or '*' for all")
