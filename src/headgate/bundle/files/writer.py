"""Write a bundle: exchanges are added one by one, and the bundle is written when the last is known.

The index precedes the responses, so nothing can be written until every length is known. Until then headers are kept
encoded and payloads by reference (`headgate.bundle.files.payloads`), so the memory for an exchange does not grow with
its payload. The same exchanges in the same order always give the same bytes.
"""

from array import array
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType

from headgate.bundle.files.atomic_file import Progress, Target, check_target, open_output
from headgate.bundle.files.payloads import PreparedPayload, Spool, payload_chunks, payload_length, prepare_payload
from headgate.bundle.format.cbor import BYTES, data, head
from headgate.bundle.format.headers import CONTENT_TYPE, Headers, encode_headers, join_header_map
from headgate.bundle.format.metadata import VERSION_BYTES
from headgate.bundle.layout import (
    BundleSpec,
    IndexBuilder,
    VariantEntry,
    VariantKeys,
    build_spec,
    lay_out,
    normalize_url,
)
from headgate.bundle.model import Exchange, Payload, Version
from headgate.errors import ConfigurationError, fail_if, naming
from headgate.http.url import without_fragment


class Responses:
    """Responses to be written: the bytes before each payload, and the payload by reference."""

    def __init__(self) -> None:
        self._heads: list[bytes] = []
        self._payloads: list[PreparedPayload] = []
        self._lengths = array("Q")

    def __len__(self) -> int:
        return len(self._lengths)

    def append(self, header_map: bytes, payload: PreparedPayload) -> None:
        """Add a response with encoded headers and a payload."""
        length = payload_length(payload)
        # 3.4: response = [headers: bstr .cbor headers, payload: bstr]
        response_head = b"\x82" + data(header_map) + head(BYTES, length)
        self._heads.append(response_head)
        self._payloads.append(payload)
        self._lengths.append(len(response_head) + length)

    def write(
        self,
        target: Target,
        spec: BundleSpec,
        index: Mapping[str, int | VariantEntry],
        progress: Progress | None = None,
    ) -> int:
        """Write the bundle of these responses, and return its length in bytes."""
        layout = lay_out(spec, index, self._lengths)
        with open_output(target, layout.length, progress) as output:
            put = output.put
            put(layout.before)
            for response_head, payload in zip(self._heads, self._payloads, strict=True):
                put(response_head)
                for chunk in payload_chunks(payload):
                    put(chunk)
            put(layout.after)
        return layout.length


class BundleWriter(AbstractContextManager["BundleWriter"]):
    """Writes one bundle to a path or a binary file, which may be a pipe; a context manager.

    The bundle is written by `close()`, or when the `with` block ends without an exception. A path then has the whole
    bundle; when anything fails it has what it had before.
    """

    length: int = 0
    """Bytes of the bundle once it is written; 0 until then."""

    def __init__(
        self,
        target: Target,
        *,
        version: Version = "b2",
        primary_url: str | None = None,
        manifest_url: str | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Begin a bundle; raises `ConfigurationError` for invalid arguments.

        b2 is what today's tools read; b1 and draft-01 have variants and signatures, and need a `primary_url` and a
        `manifest_url`.
        """
        _check_form(version, primary_url, manifest_url)
        check_target(target)
        self._target = target
        self._progress = progress
        self._primary_url = None if primary_url is None else normalize_url(primary_url, is_primary=True)
        self._manifest_url = None if manifest_url is None else normalize_url(manifest_url)
        self._spec = build_spec(version, self._primary_url, self._manifest_url)
        self._index = IndexBuilder()
        self._responses = Responses()
        self._spool: Spool | None = None
        self._untyped: list[str] = []
        self._open = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.discard()

    def add(
        self,
        url: str,
        *,
        status: int = 200,
        headers: Headers = (),
        payload: Payload | memoryview = b"",
        variants: str | None = None,
        variant_key: VariantKeys = None,
    ) -> None:
        """Add a response for `url`, which is stored in the form that the WHATWG's parser gives it.

        A URL has one response, or one for each key of its `variants` value, which comes with the first of them;
        `variant_key` may be several keys that share this response. Chunks are spooled at once. Raises
        `ConfigurationError` for what a bundle cannot hold, `HeadgateError` for a file that cannot be read; either
        leaves the writer unchanged.
        """
        fail_if(not self._open, "the bundle was written or discarded; begin another for more exchanges")
        stored = normalize_url(url)
        with naming(stored):
            entries = encode_headers(status, headers)
            kept = prepare_payload(payload, self._shared_spool)
            # 3.4 step 9. For an empty payload `remarks` has a warning.
            fail_if(
                payload_length(kept) and CONTENT_TYPE not in entries, "there is a payload and no Content-Type header"
            )
            written = join_header_map(entries)
            self._place(stored, variants, variant_key)
        self._responses.append(written, kept)
        if CONTENT_TYPE not in entries:
            self._untyped.append(stored)

    def add_exchange(self, exchange: Exchange) -> None:
        """Add an exchange as a source yields it; raises as `add` does."""
        if not isinstance(exchange, Exchange):
            raise ConfigurationError(
                f"expected an Exchange, got {exchange!r:.200}; write Exchange(url, headers={{…}}, payload=…)"
            )
        self.add(
            exchange.url,
            status=exchange.status,
            headers=exchange.headers,
            payload=exchange.payload,
            variants=exchange.variants,
            variant_key=exchange.variant_key,
        )

    def remarks(self) -> list[str]:
        """Return warnings: what is written as requested, and strict readers refuse."""
        found = []
        if self._primary_url is not None and without_fragment(self._primary_url) not in self._index:
            found.append(f"the primary URL {self._primary_url} is not in the bundle")
        if self._untyped:
            found.append(
                "empty responses without a Content-Type, which strict readers refuse (3.4 step 9): "
                f"{len(self._untyped)}, the first is {self._untyped[0]}"
            )
        return found

    def close(self) -> None:
        """Write the bundle, unless it was written or discarded.

        Raises `ConfigurationError` for an incomplete bundle, and `HeadgateError` for a payload that changed since it
        was added, and a path that cannot be written. Errors of a stream or of a payload's chunks pass through.
        """
        if not self._open:
            return
        try:
            built_index = self._index.finish()
            self._check_contained()
            self.length = self._responses.write(self._target, self._spec, built_index, self._progress)
        finally:
            self.discard()

    def discard(self) -> None:
        """Discard what was added; a bundle that was not written is not written."""
        self._open = False
        self._responses = Responses()
        self._spool = None

    def _place(self, url: str, variants: str | None, keys: VariantKeys) -> None:
        ordinal = len(self._responses)
        if variants is None and keys is None:
            self._index.place(url, ordinal)
        elif self._spec.version == "b2":
            raise ConfigurationError("b2 does not have variants; write b1, or add one response for the URL")
        else:
            self._index.place_variant(url, ordinal, variants, keys)

    def _check_contained(self) -> None:
        # 3.3.2: "The URL MUST refer to the one or more response(s) contained in the bundle itself."
        named = {"manifest": self._manifest_url}
        if self._spec.version == "b2":
            # b2's document says the same of its primary section; draft-01 says nothing, and calls it a fallback.
            named["primary"] = self._primary_url
        for what, url in named.items():
            fail_if(
                url is not None and without_fragment(url) not in self._index,
                f"the {what} URL {url} is not in the bundle; add a response for it",
            )

    def _shared_spool(self) -> Spool:
        if self._spool is None:
            self._spool = Spool()
        return self._spool


def _check_form(version: Version, primary_url: str | None, manifest_url: str | None) -> None:
    fail_if(version not in VERSION_BYTES, f"unknown version {version!r}; expected one of {', '.join(VERSION_BYTES)}")
    fail_if(
        primary_url is None and version != "b2", f"a {version} bundle needs a primary URL; set primary_url, or write b2"
    )
    # 3.3 step 24: without "manifest" the metadata is a format error.
    fail_if(
        manifest_url is None and version != "b2", f"a {version} bundle needs a manifest; set manifest_url, or write b2"
    )
