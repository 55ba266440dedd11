"""Counters of a server: read from where they are counted, summed over workers, and written as metrics.

A counter is declared once, as a field of a `msgspec.Struct` that begins at 0, with its description as the docstring
under it. A field that is a dictionary counts by reason: it begins with every reason at 0, and its metric has the label
`reason`, or the one that an `Annotated` type names. A group is such a struct with the first word of its metrics:
`("link", GatekeeperCounters)` declares `headgate_link_sent_total` and so on.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import asdict, fields, replace
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headgate.config.file import field_docs

_State = TypeVar("_State", bound=Struct)

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


def sum_states(states: Sequence[_State], **others: Any) -> _State:
    """Return the last of some states with the sums of their fields (see `_total`), apart from the `others`."""
    names = [name for name in states[-1].__struct_fields__ if name not in others]
    return replace(states[-1], **others, **{name: _total([getattr(one, name) for one in states]) for name in names})


def _total(values: Sequence[Any]) -> Any:
    """Return the sum of numbers, or of dictionaries by key; whether any of some truths holds; or the last value."""
    last = values[-1]
    if isinstance(last, bool):
        return any(values)
    if isinstance(last, int | float):
        return sum(values)
    if isinstance(last, dict):
        keys = dict.fromkeys(key for value in values for key in value)
        return {key: _total([value[key] for value in values if key in value]) for key in keys}
    return last


def counter_metrics(counters: Counters, groups: CounterGroups) -> Iterator[Metric]:
    """Make a metric of each counter of the groups, in the order of their names; one that was not read is 0.

    Each must be declared in one of the groups.
    """
    groups = list(groups)
    counters = read_counters(*((group, kind()) for group, kind in groups)) | counters
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


def gauges(state: Struct, names: Mapping[str, str]) -> Iterator[Metric]:
    """Make a gauge of each of these fields, with the names of their metrics; their docstrings describe them."""
    docs = field_docs(type(state))
    for field, name in names.items():
        yield gauge(name, " ".join(docs[field].split()), getattr(state, field))


def _fill(family: CounterMetricFamily | GaugeMetricFamily, values: Mapping[str, float]) -> Metric:
    for label, value in values.items():
        family.add_metric([label_text(label)], value)
    return family


def label_text(name: str) -> str:
    """Return a name from the configuration or the bus as the value of a label; bytes not UTF-8 are replaced."""
    return name.encode("utf-8", "replace").decode()
