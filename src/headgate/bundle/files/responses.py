"""The responses of a bundle that is written, in order, and the writing of the whole bundle."""

from array import array
from collections.abc import Mapping

from headgate.bundle.files.atomic_file import Progress, Target, open_output
from headgate.bundle.files.payloads import PreparedPayload, payload_chunks
from headgate.bundle.format.cbor import BYTES, data, head
from headgate.bundle.writing.layout import BundleSpec, VariantEntry, lay_out


class Responses:
    """Responses to be written: the bytes before each payload, and the payload by reference."""

    def __init__(self) -> None:
        self._heads: list[bytes] = []
        self._payloads: list[PreparedPayload] = []
        self._lengths = array("Q")

    def __len__(self) -> int:
        return len(self._lengths)

    def append(self, header_map: bytes, payload: PreparedPayload, length: int) -> None:
        """Add a response with encoded headers and a payload of `length` bytes."""
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
                if type(payload) is bytes:
                    put(payload)
                else:
                    for chunk in payload_chunks(payload):
                        put(chunk)
            put(layout.after)
        return layout.length
