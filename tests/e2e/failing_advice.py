"""`headgate`, with a defect injected: whenever it fetches advice, the code that does so raises an unexpected exception.

Workers are processes of their own and run the true code; in a proxy that has some, only the parent fetches advice.
"""

from headgate.cli.program import main
from headgate.proxy.admission import advice_service


async def fail(*_args, **_named):
    """Take the place of the fetch."""
    raise LookupError("an injected defect")


advice_service.exchange = fail

if __name__ == "__main__":
    main()
