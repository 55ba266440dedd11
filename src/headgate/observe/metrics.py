"""Counters of a server: read from where they are counted, summed over workers, and written as metrics.

A counter is declared once, as a field of a `msgspec.Struct` that begins at 0, with its description as the docstring
under it. A field that is a dictionary counts by the value of a label, `reason` unless an `Annotated` type names
another; with several names, such as `Annotated[dict[str, dict[str, int]], "domain", "status"]`, by the values of each.
The last name "le" makes it a histogram: counts by upper bound, each with those below, and the sum as "sum".
It begins with every value at 0 that is known at the start. A group is such a struct with the first word of its metrics:
`("link", GatekeeperCounters)` declares `headgate_link_sent_total` and so on; an empty word adds nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import asdict, fields, replace
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from headgate.config.file import field_docs

_State = TypeVar("_State", bound=Struct)

Counters: TypeAlias = dict[str, Any]
"""Counts, or dictionaries of counts by the values of labels, by the names of their metrics without `headgate_` and
`_total`."""
CounterGroups: TypeAlias = Iterable[tuple[str, type[Struct]]]
"""Structs of counters, each with the first word of its metrics."""


def read_counters(*groups: tuple[str, Struct]) -> Counters:
    """Return what is counted in structs, each with the first word of its metrics."""
    return {
        f"{group}_{name}".lstrip("_"): _total([value])  # a copy
        for group, counters in groups
        for name, value in asdict(counters).items()
    }


def sum_states(states: Sequence[_State], **others: Any) -> _State:
    """Return the last of some states with the sums of their fields (see `_total`), apart from the `others`."""
    names = [name for name in states[-1].__struct_fields__ if name not in others]
    return replace(states[-1], **others, **{name: _total([getattr(one, name) for one in states]) for name in names})


def _total(values: Sequence[Any]) -> Any:
    """Return the sum of numbers, of dictionaries by key, of structs by field; whether any of some truths holds; or the
    last value."""
    last = values[-1]
    if isinstance(last, Struct):
        return sum_states(values)
    if isinstance(last, bool):
        return any(values)
    if isinstance(last, int | float):
        return sum(values)
    return _total_by_key(values) if isinstance(last, dict) else last


def _total_by_key(values: Iterable[dict[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {}
    others: dict[str, list[Any]] = {}
    for value in values:
        for key, one in value.items():
            # A loop instead of a call for each: a thousand domains have tens of thousands of numbers.
            if type(one) is int or type(one) is float:
                total[key] = total.get(key, 0) + one
            else:
                others.setdefault(key, []).append(one)
    return total | {key: _total(same) for key, same in others.items()}


def counter_metrics(counters: Counters, groups: CounterGroups) -> Iterator[Metric]:
    """Make a metric of each counter of the groups, in the order of their names; one that was not read is 0.

    Each must be declared in one of the groups.
    """
    groups = list(groups)
    counters = read_counters(*((group, kind()) for group, kind in groups)) | counters
    declared = {f"{group}_{field.name}".lstrip("_"): (kind, field) for group, kind in groups for field in fields(kind)}
    for name, value in sorted(counters.items()):
        kind, field = declared[name]
        labels = getattr(field.type, "__metadata__", ("reason",)) if isinstance(value, dict) else ()
        yield counter(f"headgate_{name}", field_docs(kind)[field.name], value, *labels)


def counter(name: str, text: str, values: Any, *labels: str) -> Metric:
    """Make the metric of a counter, described by `text`: of a number, or of numbers by the values of each label."""
    return _metric(CounterMetricFamily, name, text, values, labels)


def gauge(name: str, text: str, values: Any, *labels: str) -> Metric:
    """Make the metric of what rises and falls, as `counter`."""
    return _metric(GaugeMetricFamily, name, text, values, labels)


def gauges(state: Struct, names: Mapping[str, str]) -> Iterator[Metric]:
    """Make a gauge of each of these fields, with the names of their metrics; their docstrings describe them."""
    docs = field_docs(type(state))
    for field, name in names.items():
        yield gauge(name, docs[field], getattr(state, field))


def _metric(
    kind: type[CounterMetricFamily | GaugeMetricFamily], name: str, text: str, values: Any, labels: tuple[str, ...]
) -> Metric:
    text = " ".join(text.split())
    if labels[-1:] == ("le",):
        histogram = HistogramMetricFamily(name, text, labels=labels[:-1])
        for texts, buckets in _samples(values, len(labels) - 1):
            histogram.add_metric(texts, [one for one in buckets.items() if one[0] != "sum"], buckets["sum"])
        return histogram
    family = kind(name, text, labels=labels)
    for texts, value in _samples(values, len(labels)):
        family.add_metric(texts, value)
    return family


def _samples(values: Any, depth: int) -> Iterator[tuple[list[str], Any]]:
    """Yield each value below `depth` labels, with theirs; bytes of a name from the bus that are not UTF-8 are
    replaced."""
    if not depth:
        yield [], values
        return
    for name, inner in values.items():
        for texts, value in _samples(inner, depth - 1):
            yield [name.encode("utf-8", "replace").decode(), *texts], value
