"""Cooperative HTTP traffic control for both ends of a connection.

Every mechanism here answers one question, "when may this request go?", with an instant: see `headgate.release`.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
