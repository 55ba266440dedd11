"""What accepts clients: the server's own process, or a supervisor of workers; and what a worker process runs."""

from typing import Any

from headgate.runtime.stderr import write_line


class Backend:
    """One backend, driven by a `Server`. The defaults are those of a backend that has nothing to do."""

    @property
    def drain_timeout(self) -> float:
        """Seconds that requests under way may take after a stop."""
        return 0.0

    async def start(self) -> None:
        """Accept clients. Raises `ConfigurationError` when that is not possible."""
        raise NotImplementedError

    def unready(self) -> str:
        """Return why no client is accepted although it has started; empty when they are."""
        return ""

    async def state(self, *, whole: bool) -> Any:
        """Return the state; parts that take long, and that no metric needs, only if `whole`."""
        raise NotImplementedError

    async def reload(self, configuration: Any) -> None:
        """Put another configuration in force. Raises, and leaves all as it is, for an invalid one."""
        raise NotImplementedError

    async def drain(self, seconds: float) -> None:
        """Accept no more clients, and return when those that are served are done, or after `seconds`.

        A second call, with 0, while the first one waits makes both return.
        """

    async def close(self) -> None:
        """Close all connections, and release everything, however far the start came."""

    def on_message(self, message: Any) -> None:
        """Handle a supervisor's message of a kind that not every worker has; None when the supervisor is gone."""

    def log(self, message: str) -> None:
        """Write a message for the operator."""
        write_line(message)
