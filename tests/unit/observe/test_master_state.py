import msgspec

from headgate.observe import MasterDomainState, MasterState, master_metrics
from headgate.observe.admin import Metrics
from headgate.observe.master_state import QuotaState

STATE = MasterState((MasterDomainState("api", delayed=2, identifiers=3, holds=1),), counters={"bus_controls": 4})


def test_metrics():
    text, _ = Metrics(master_metrics).write(STATE)
    lines = text.decode().splitlines()
    assert 'headgate_master_requests_total{domain="api",outcome="delayed"} 2.0' in lines
    assert 'headgate_master_identifiers{domain="api"} 3.0' in lines
    assert "headgate_bus_controls_total 4.0" in lines


def test_metrics_of_the_quota_service():
    state = msgspec.structs.replace(STATE, quotas=QuotaState("127.0.0.1:10006", 2, 40), counters={"quota_reports": 7})
    lines = Metrics(master_metrics).write(state)[0].decode().splitlines()
    assert "headgate_quota_envoys 2.0" in lines
    assert "headgate_quota_buckets 40.0" in lines
    assert "headgate_quota_reports_total 7.0" in lines
    assert "headgate_quota" not in Metrics(master_metrics).write(STATE)[0].decode()


def test_domain_that_is_not_utf_8_has_a_label():
    text, _ = Metrics(master_metrics).write(MasterState((MasterDomainState("\udcff"),)))
    assert 'headgate_master_identifiers{domain="?"} 0.0' in text.decode().splitlines()
