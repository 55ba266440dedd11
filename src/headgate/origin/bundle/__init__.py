"""Serving bundles: the file as it is, the site inside it, and a lifeboat for requests that are turned away.

`BundleApp` serves with any ASGI server, `Storefront` with the gateway's own protocol, and `Shelf` inside a gate.
"""

from headgate.origin.bundle.app import BundleApp
from headgate.origin.bundle.edition import Edition
from headgate.origin.bundle.publication import Publication
from headgate.origin.bundle.shelf import Lifeboat, Shelf
from headgate.origin.bundle.storefront import Storefront

__all__ = ["BundleApp", "Edition", "Lifeboat", "Publication", "Shelf", "Storefront"]
