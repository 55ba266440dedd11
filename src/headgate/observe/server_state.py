"""What all servers have in common: version, last reload, workers, and the resources of every process."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from platform import python_version

import msgspec
from prometheus_client import ProcessCollector
from prometheus_client.core import Metric

from headgate.observe.metrics import gauge, gauges
from headgate.version import VERSION

_GAUGES = {
    "reload_successful": "headgate_config_last_reload_successful",
    "reloaded": "headgate_config_last_reload_timestamp_seconds",
}


class ServerState(msgspec.Struct):
    """What every server has besides the state of its kind."""

    reload_successful: bool = True
    """1 if the configuration in force is the last one that was read, 0 if that one was invalid."""
    reloaded: float = 0.0
    """Time at which the configuration in force was read, seconds since 1970."""
    workers: Mapping[str, tuple[int, bool]] = {}
    """The process id of each worker, by its number from 0, and whether it answers."""


def server_metrics(state: ServerState) -> Iterator[Metric]:
    """Make the metrics of what all servers have in common."""
    build = {VERSION: {python_version(): 1}}
    yield gauge("headgate_build_info", "1; the labels are the versions.", build, "version", "python")
    yield from gauges(state, _GAUGES)
    yield gauge(
        "headgate_workers_unresponsive",
        "Workers that do not answer; one that does not run either is replaced.",
        sum(not answers for _, answers in state.workers.values()),
    )


def process_metrics(own: Iterable[Metric], workers: Mapping[str, tuple[int, bool]]) -> Iterator[Metric]:
    """Add those of workers to the metrics of this process, which are without the label `worker`."""
    found = {
        number: {metric.name: metric for metric in ProcessCollector(pid=partial(str, pid), registry=None).collect()}
        for number, (pid, _) in workers.items()
    }
    for metric in own:
        for number, metrics in found.items():
            same = metrics[metric.name].samples if metric.name in metrics else []
            metric.samples += [sample._replace(labels={"worker": number}) for sample in same]
        yield metric
