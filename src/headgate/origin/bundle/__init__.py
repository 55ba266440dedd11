"""An ASGI application that serves a bundle: the file, or the site inside it."""

from headgate.origin.bundle.asgi import BundleApp

__all__ = ["BundleApp"]
