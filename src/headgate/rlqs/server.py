"""The gRPC server of the quota service: one stream for each Envoy, in the event loop of the master.

A message is decoded in steps, between which the loop serves the bus. What waits to be sent to an Envoy is one action
for each of its buckets, so an Envoy that does not read takes no further memory.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

from headgate.config.section import Address
from headgate.errors import MissingExtra, fail_if
from headgate.rlqs.service import QuotaService
from headgate.rlqs.table import QuotaStream

_SERVICE: Final = "envoy.service.rate_limit_quota.v3.RateLimitQuotaService"
_METHOD: Final = "StreamRateLimitQuotas"
_MAX_MESSAGE_SIZE: Final = 4 * 1024 * 1024
"""Bytes: a report of as many buckets as a stream may have, of 64 bytes each."""
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 2 * _MAX_MESSAGE_SIZE),  # beyond it gRPC refuses by itself, and nothing counts
    ("grpc.so_reuseport", 0),  # another server at the port is an error
    # An Envoy whose machine has vanished is noticed.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
)
_TURN_INTERVAL: Final = 0.05
"""Seconds; a hold is lifted so much later at most."""
_FIRST_REPORT: Final = 30.0
"""Seconds within which a stream sends its first report."""
_NEXT_REPORT: Final = 3_600.0
"""Seconds; an Envoy without a bucket reports nothing, and it opens a stream again when it needs one."""
_END_TIMEOUT: Final = 2.0
"""Seconds that streams may take to end when the server stops."""


class QuotaServer:
    """Serves `service` at `address`. `log` is called with errors; `clock` returns seconds since 1970.

    `tls` is the private key and the chain of certificates, PEM; without them there is no TLS. Raises `MissingExtra`
    without grpcio.
    """

    def __init__(
        self,
        service: QuotaService,
        address: Address,
        *,
        log: Callable[[str], None],
        clock: Callable[[], float] = time.time,
        tls: Sequence[bytes] = (),
        first_report: float = _FIRST_REPORT,
    ) -> None:
        self.address = address
        """Where it listens; `start` replaces port 0 by the port that the system chose."""
        self.service = service
        """What answers the reports."""
        self._log = log
        self._clock = clock
        self._tls = tls
        self._first_report = first_report
        self._grpc = _import_grpc()
        self._server: Any = None
        self._turning: asyncio.Task[None] | None = None
        self._serving: set[asyncio.Task[Any]] = set()
        self._is_closing = False

    async def start(self) -> None:
        """Listen, and serve until `close`. Raises `ConfigurationError` if the address is not available."""
        grpc = self._grpc
        self._server = grpc.aio.server(options=_OPTIONS)
        handler = grpc.stream_stream_rpc_method_handler(self._serve)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: handler}),))
        try:
            # gRPC has no word for all addresses of both families.
            target = self.address._replace(host="::") if self.address.host == "*" else self.address
            if not self._tls:
                port = self._server.add_insecure_port(str(target))
            else:
                port = self._server.add_secure_port(str(target), grpc.ssl_server_credentials([tuple(self._tls)]))
        except RuntimeError:
            port = 0
        fail_if(
            not port, f"--rlqs: cannot listen at {self.address}; stop the program that does, or choose another address"
        )
        self.address = Address(self.address.host, port)
        await self._server.start()
        self._turning = asyncio.get_running_loop().create_task(self._turn())

    async def close(self) -> None:
        """End all streams."""
        self._is_closing = True
        if self._turning is not None:
            self._turning.cancel()
        if self._server is not None:
            await self._server.stop(None)
            # It does not wait for its tasks, and writes a traceback if the end of the event loop cancels them.
            if self._serving:
                await asyncio.wait(self._serving, timeout=_END_TIMEOUT)

    def on_control(self, domain: str, identifier: bytes, release: float) -> None:
        """Pass a control that has been published to Envoys."""
        self.service.on_control(domain, identifier, release, now=self._clock(), moment=time.monotonic())

    async def _serve(self, _requests: AsyncIterator[bytes], context: Any) -> None:
        """Serve one stream."""
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        filled = asyncio.Event()
        stream = self.service.open(filled.set, peer=_host(context.peer()))
        if stream is None:
            await context.abort(self._grpc.StatusCode.RESOURCE_EXHAUSTED, "too many streams")
            return
        sending = asyncio.get_running_loop().create_task(self._send(stream, filled, context))
        try:
            refusal = await self._receive(stream, context)
        except Exception as error:
            if self._is_closing:
                return  # grpcio stops the streams that are open, and raises an error of its own in some
            self._log(f"internal error in the quota service: {type(error).__name__}: {error}")
            raise  # ends the stream; the Envoy opens another
        finally:
            self.service.close(stream)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        if refusal is not None:
            await context.abort(*refusal)

    async def _receive(self, stream: QuotaStream, context: Any) -> tuple[Any, str] | None:
        """Process messages until the Envoy ends the stream; return the status and the reason if this service does."""
        grpc, counters = self._grpc, self.service.counters
        timeout = self._first_report
        while True:
            try:
                data = await asyncio.wait_for(context.read(), timeout)
            except TimeoutError:
                counters.streams["silent"] += 1
                return grpc.StatusCode.DEADLINE_EXCEEDED, f"no report for {timeout:g} s"
            if data is grpc.aio.EOF:
                return None
            if len(data) > _MAX_MESSAGE_SIZE:
                counters.reports["oversized"] += 1
                sentence = f"a message must have at most {_MAX_MESSAGE_SIZE} bytes, got {len(data)}"
                return grpc.StatusCode.RESOURCE_EXHAUSTED, sentence
            timeout = _NEXT_REPORT
            for _ in self.service.receive(stream, data, now=self._clock(), moment=time.monotonic()):
                await asyncio.sleep(0)

    async def _send(self, stream: QuotaStream, filled: asyncio.Event, context: Any) -> None:
        """Send what waits, as fast as the Envoy reads."""
        while True:
            await filled.wait()
            filled.clear()
            while data := stream.take():
                await context.write(data)

    async def _turn(self) -> None:
        while True:
            await asyncio.sleep(_TURN_INTERVAL)
            self.service.turn(now=self._clock(), moment=time.monotonic())


def _host(peer: str) -> str:
    """Return the address of a peer without its port, from the form ipv4:192.0.2.1:50000."""
    return peer.rpartition(":")[0]


def _import_grpc() -> Any:
    # Its core writes lines of its own to stderr, also for what is reported as an error here.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        import grpc.aio
    except ImportError:
        raise MissingExtra("envoy", "master.rlqs") from None
    return grpc
