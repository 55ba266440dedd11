"""The responses of a bundle on its way out, in order, and the writing of the whole."""

from array import array
from collections.abc import Mapping

from headgate.bundle.files.atomic_file import Progress, Target, open_output
from headgate.bundle.files.payloads import PreparedPayload, payload_chunks
from headgate.bundle.format.cbor import BYTES, data, head
from headgate.bundle.writing.layout import BundleSpec, VariantEntry, lay_out

__all__ = ["Responses"]


class Responses:
    """Responses as they are kept: what stands before a payload in bytes, and the payload by reference."""

    def __init__(self) -> None:
        self._leads: list[bytes] = []
        self._payloads: list[PreparedPayload] = []
        self._lengths = array("Q")

    def __len__(self) -> int:
        return len(self._lengths)

    def append(self, header_map: bytes, payload: PreparedPayload, length: int) -> None:
        """Keep a response of these headers, already encoded, and a payload of `length` bytes."""
        # 3.4: response = [headers: bstr .cbor headers, payload: bstr]
        lead = b"\x82" + data(header_map) + head(BYTES, length)
        self._leads.append(lead)
        self._payloads.append(payload)
        self._lengths.append(len(lead) + length)

    def write(
        self,
        target: Target,
        form: BundleSpec,
        index: Mapping[str, int | VariantEntry],
        progress: Progress | None = None,
    ) -> int:
        """Write the bundle of these responses, and give its length in bytes."""
        plan = lay_out(form, index, self._lengths)
        with open_output(target, plan.length, progress) as output:
            put = output.put
            put(plan.before)
            for lead, payload in zip(self._leads, self._payloads, strict=True):
                put(lead)
                if type(payload) is bytes:
                    put(payload)
                else:
                    for chunk in payload_chunks(payload):
                        put(chunk)
            put(plan.after)
        return plan.length
