from typing import Annotated

import msgspec
import pytest

from headgate.histogram import Histogram, histogram_of, new_histogram, observe
from headgate.observe import (
    DomainState,
    GateState,
    LinkedMasterState,
    MasterDomainState,
    MasterState,
    SidecarState,
    master_metrics,
    merge_states,
    read_counters,
    sidecar_metrics,
)
from headgate.observe.metrics import counter_metrics
from headgate.observe.state import QuotaState, rules_digests


class LinkCounters(msgspec.Struct):
    sent: int = 0
    """Accounting sent."""
    dropped: dict[str, int] = msgspec.field(default_factory=lambda: {"full": 0, "too_long": 0})
    """Accounting dropped,
    by reason."""


LINK = [("link", LinkCounters)]


def written(metrics) -> dict[str, float]:
    """Return the samples as a server writes them."""
    return {
        f"{sample.name} {','.join(sample.labels.values())}".strip(): sample.value
        for metric in metrics
        for sample in metric.samples
    }


def test_a_counter_is_declared_once():
    counters = LinkCounters(sent=5)
    counters.dropped["full"] += 2
    state = SidecarState("nginx-lua", counters=read_counters(("link", counters)))
    counters.dropped["full"] += 1  # what was read stays as it was
    unread = SidecarState("nginx-lua")
    assert written(sidecar_metrics(unread, LINK))["headgate_link_sent_total"] == 0
    metrics = {metric.name: metric for metric in sidecar_metrics(state, LINK)}
    assert metrics["headgate_link_dropped"].documentation == "Accounting dropped, by reason."
    assert metrics["headgate_link_sent"].documentation == "Accounting sent."
    assert [sample.labels for sample in metrics["headgate_link_dropped"].samples] == [
        {"reason": "full"},
        {"reason": "too_long"},
    ]
    assert written(metrics[name] for name in ("headgate_link_sent", "headgate_link_dropped")) == {
        "headgate_link_sent_total": 5,
        "headgate_link_dropped_total full": 2,
        "headgate_link_dropped_total too_long": 0,
    }


class Responses(msgspec.Struct):
    by_status: Annotated[dict[str, dict[str, int]], "domain", "status"] = {}
    """Responses."""


def test_a_counter_has_any_number_of_labels_and_its_sums_have_all_values():
    one, other = Responses({"api": {"2xx": 3}}), Responses({"api": {"2xx": 1, "5xx": 2}, "": {"4xx": 1}})
    read = [GateState(counters=read_counters(("gateway", each))) for each in (one, other)]
    one.by_status["api"]["2xx"] = 9  # what was read stays as it was
    assert written(counter_metrics(merge_states(read).counters, [("gateway", Responses)])) == {
        "headgate_gateway_by_status_total api,2xx": 4,
        "headgate_gateway_by_status_total api,5xx": 2,
        "headgate_gateway_by_status_total ,4xx": 1,
    }


def test_a_counter_that_is_not_declared_is_an_error():
    with pytest.raises(KeyError):
        list(sidecar_metrics(SidecarState("nginx-lua", counters={"link_sent": 1}), []))


def test_sums():
    one, other = read_counters(("link", LinkCounters(4))), read_counters(("link", LinkCounters(3, {"full": 2})))
    states = [GateState(counters=counters) for counters in (one, other, {"gateway_retried": 1})]
    assert merge_states(states).counters == {
        "link_sent": 7,
        "link_dropped": {"full": 2, "too_long": 0},
        "gateway_retried": 1,
    }


def test_sidecar():
    masters = (LinkedMasterState("10.0.0.5:10004", up=True), LinkedMasterState("10.0.0.6:10004"))
    state = SidecarState("nginx-lua", domains=(DomainState("api", accepted=4, rejected=1),), masters=masters)
    assert written(sidecar_metrics(state, [])) == {
        "headgate_requests_total api,accepted": 4,
        "headgate_requests_total api,delayed": 0,
        "headgate_requests_total api,rejected": 1,
        "headgate_holds api": 0,
        "headgate_master_up 10.0.0.5:10004": 1,
        "headgate_master_up 10.0.0.6:10004": 0,
    }


def test_master_and_its_quota_service():
    # A name from the bus may have bytes that are not UTF-8.
    state = MasterState((MasterDomainState("api", delayed=2, identifiers=3, holds=1), MasterDomainState("\udcff")))
    found = written(master_metrics(state, []))
    assert found["headgate_master_requests_total api,delayed"] == 2
    assert found["headgate_master_identifiers api"] == 3
    assert found["headgate_master_identifiers ?"] == 0
    assert not any(name.startswith("headgate_quota") for name in found)
    found = written(master_metrics(msgspec.structs.replace(state, quotas=QuotaState("127.0.0.1:10006", 2, 40)), []))
    assert (found["headgate_quota_envoys"], found["headgate_quota_buckets"]) == (2, 40)


def test_the_digests_of_rules_are_equal_where_the_rules_are():
    def digest(rules=("1/s burst 5", "9/min burst 9"), mode="enforce"):
        return written([rules_digests([DomainState("api", rules, mode=mode)])]).get("headgate_rules_digest api")

    assert digest() == digest(("9/min burst 9", "1/s burst 5"))
    assert len({digest(), digest(("1/s burst 5",)), digest(mode="shadow")}) == 3
    assert digest(()) is None  # only the master knows them


@pytest.mark.parametrize(("store", "up"), [("up", 1), ("partial", 0), ("down", 0), ("memory", None)])
def test_a_store_is_up_if_all_of_it_can_be_used(store, up):
    assert written(master_metrics(MasterState(store=store), [])).get("headgate_store_up") == up


class Waits(msgspec.Struct):
    seconds: Annotated[dict[str, Histogram], "domain", "le"] = {}
    """Waits."""


def test_histograms():
    one, other = new_histogram(), new_histogram()
    for seconds in (0.001, 0.3, 70.0):
        observe(one, seconds)
    assert one == histogram_of([1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1], 70.301)
    counts = [GateState(counters=read_counters(("", Waits({"api": each})))) for each in (one, other, one)]
    found = written(counter_metrics(merge_states(counts).counters, [("", Waits)]))
    assert (found["headgate_seconds_bucket api,0.25"], found["headgate_seconds_bucket api,0.5"]) == (2, 4)
    assert (found["headgate_seconds_count api"], found["headgate_seconds_sum api"]) == (6, pytest.approx(140.602))
