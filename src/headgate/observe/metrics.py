"""Counters of a server: read from where they are counted, summed over workers, and written as metrics.

A counter is declared once, as a field of a `msgspec.Struct` that begins at 0, with its description as the docstring
under it. A field that is a dictionary counts by reason: it begins with every reason at 0, and its metric has the label
`reason`, or the one that an `Annotated` type names. A group is such a struct with the first word of its metrics:
`("link", GatekeeperCounters)` declares `headgate_link_sent_total` and so on.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import asdict, fields
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headgate.config.file import field_docs

Counters: TypeAlias = dict[str, int | dict[str, int]]
"""Counts, or counts by reason, by the names of their metrics without `headgate_` and `_total`."""
CounterGroups: TypeAlias = Iterable[tuple[str, type[Struct]]]
"""Structs of counters, each with the first word of its metrics."""


def read_counters(*groups: tuple[str, Struct]) -> Counters:
    """Return what is counted in structs, each with the first word of its metrics."""
    return {
        f"{group}_{name}": dict(value) if isinstance(value, dict) else value
        for group, counters in groups
        for name, value in asdict(counters).items()
    }


def sum_counters(all_counters: Iterable[Counters]) -> Counters:
    """Return the sums of the counters of several processes."""
    total: Counters = {}
    for counters in all_counters:
        for name, value in counters.items():
            total[name] = _sum(total[name], value) if name in total else value
    return total


def _sum(one: int | dict[str, int], other: int | dict[str, int]) -> int | dict[str, int]:
    if isinstance(one, int) and isinstance(other, int):
        return one + other
    assert isinstance(one, dict)
    assert isinstance(other, dict)
    return {reason: one.get(reason, 0) + other.get(reason, 0) for reason in one | other}


def counter_metrics(counters: Counters, groups: CounterGroups) -> Iterator[Metric]:
    """Make a metric of each counter, in the order of their names. Each must be declared in one of the groups."""
    declared = {f"{group}_{field.name}": (kind, field) for group, kind in groups for field in fields(kind)}
    for name, value in sorted(counters.items()):
        kind, field = declared[name]
        (label,) = getattr(field.type, "__metadata__", ("reason",))
        yield counter(f"headgate_{name}", " ".join(field_docs(kind)[field.name].split()), value, label)


def counter(name: str, text: str, value: float | Mapping[str, float], label: str = "reason") -> Metric:
    """Make the metric of a counter, described by `text`; a mapping has the values of a label."""
    if isinstance(value, Mapping):
        return _fill(CounterMetricFamily(name, text, labels=[label]), value)
    return CounterMetricFamily(name, text, value)


def gauge(name: str, text: str, value: float | Mapping[str, float], label: str = "") -> Metric:
    """Make the metric of a value that rises and falls; a mapping has the values of a label."""
    if isinstance(value, Mapping):
        return _fill(GaugeMetricFamily(name, text, labels=[label]), value)
    return GaugeMetricFamily(name, text, value)


def _fill(family: CounterMetricFamily | GaugeMetricFamily, values: Mapping[str, float]) -> Metric:
    for label, value in values.items():
        # Names may come from the configuration or the bus; a metric has only Unicode.
        family.add_metric([label.encode("utf-8", "replace").decode()], value)
    return family
