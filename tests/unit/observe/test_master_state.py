from headgate.observe import MasterDomainState, MasterState, master_metrics
from headgate.observe.admin import Metrics

STATE = MasterState((MasterDomainState("api", delayed=2, identifiers=3, holds=1),), counters={"bus_controls": 4})


def test_metrics():
    text, _ = Metrics(master_metrics).write(STATE)
    lines = text.decode().splitlines()
    assert 'headgate_master_requests_total{domain="api",outcome="delayed"} 2.0' in lines
    assert 'headgate_master_identifiers{domain="api"} 3.0' in lines
    assert "headgate_bus_controls_total 4.0" in lines


def test_domain_that_is_not_utf_8_has_a_label():
    text, _ = Metrics(master_metrics).write(MasterState((MasterDomainState("\udcff"),)))
    assert 'headgate_master_identifiers{domain="?"} 0.0' in text.decode().splitlines()
