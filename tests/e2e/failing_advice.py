"""`headgate`, with a defect injected: whenever it fetches advice, the code that does so raises an unexpected exception.

Workers are processes of their own and run the true code; in a proxy that has some, only the parent fetches advice.
"""

from typing import Any

from headgate.cli import main
from headgate.proxy.admission import advice_service


async def fail(*_args: Any, **_named: Any) -> None:
    """Take the place of the fetch."""
    raise LookupError("an injected defect")


setattr(advice_service, "exchange", fail)  # noqa: B010  # a name that the module does not export

if __name__ == "__main__":
    main()
