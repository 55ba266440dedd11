"""`headgate proxy`: the prefetch proxy, in one process or several."""

from headgate.cli.proxy.command import proxy

__all__ = ["proxy"]
