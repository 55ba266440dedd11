"""Serve bundles: the file, the site inside it, and a lifeboat for rejected requests.

`BundleApp` is an ASGI application, `BundleServer` has the gateway's own interface, `GateBundles` is for a gate.
"""

from headgate.origin.bundle.asgi import BundleApp
from headgate.origin.bundle.server import BundleServer, GateBundles, Lifeboat
from headgate.origin.bundle.snapshot import BundleSnapshot, ReloadingBundle

__all__ = ["BundleApp", "BundleSnapshot", "Lifeboat", "ReloadingBundle", "GateBundles", "BundleServer"]
