"""What a fault did to the requests of a load: failures, time without limits, and admitted requests against the rule."""

from collections.abc import Iterable, Sequence
from itertools import accumulate

from headgate.limit import Domain, Gatekeeper
from headgate.release import Status
from tests.e2e.fault_load import Sample

ADMITTED, REJECTED = 200, 429


def failed(samples: Iterable[Sample]) -> list[Sample]:
    """Return the requests without a response, or with one that is neither the origin's nor a rejection by a rule."""
    return [sample for sample in samples if sample.status not in {ADMITTED, REJECTED}]


def wrongly_rejected(samples: Iterable[Sample]) -> list[Sample]:
    """Return the rejected requests of identifiers that are below the rule."""
    return [sample for sample in samples if sample.kind in {"cold", "probe"} and sample.status == REJECTED]


def answered(sample: Sample) -> float:
    """Return when the response of a request arrived."""
    return sample.sent + sample.latency


def between(samples: Iterable[Sample], start: float, end: float) -> list[Sample]:
    """Return the requests sent from `start` to `end`."""
    return [sample for sample in samples if start <= sample.sent < end]


def unlimited(samples: Sequence[Sample]) -> list[float]:
    """Return when the probes were sent whose second request was admitted: no hold reached its gate."""
    first = {sample.client: sample for sample in samples if sample.kind == "probe" and sample.status == ADMITTED}
    return sorted(
        first[sample.client].sent
        for sample in samples
        if sample.kind == "echo" and sample.status == ADMITTED and sample.client in first
    )


def excess(samples: Iterable[Sample], domain: Domain) -> tuple[int, int]:
    """Compare the hot requests that got a response with one gate with a master of its own that saw them all.

    Return the most that were ever admitted beyond what such a gate admits, since the start, and the most that were ever
    missing.
    """
    hot = [sample for sample in samples if sample.kind == "hot" and sample.status in {ADMITTED, REJECTED}]
    hot.sort(key=answered)  # a gate that was stopped decides late
    gate = Gatekeeper.embedded([domain], max_delay=0.0)
    allowed = [gate.admit(domain.name, b"hot", now=answered(sample)).status is Status.ACCEPTED for sample in hot]
    differences = ((sample.status == ADMITTED) - may for sample, may in zip(hot, allowed, strict=True))
    found = list(accumulate(differences, initial=0))
    return max(found), -min(found)
