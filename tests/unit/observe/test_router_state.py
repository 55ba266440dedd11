from headgate.observe import RoutedDomain, RoutedMasterState, RouterState, router_metrics
from headgate.observe.admin import Metrics

STATE = RouterState(
    (RoutedMasterState("10.0.0.5:10004", up=True, sent=3, dropped=2, controls=1), RoutedMasterState("10.0.0.6:10004")),
    (RoutedDomain("api", "10.0.0.5:10004"),),
    counters={"router_accounted": 5},
)


def test_metrics():
    text, _ = Metrics(router_metrics).write(STATE)
    lines = text.decode().splitlines()
    expected = [
        'headgate_router_master_up{master="10.0.0.5:10004"} 1.0',
        'headgate_router_master_up{master="10.0.0.6:10004"} 0.0',
        'headgate_router_sent_total{master="10.0.0.5:10004"} 3.0',
        'headgate_router_dropped_total{master="10.0.0.5:10004"} 2.0',
        'headgate_router_controls_total{master="10.0.0.5:10004"} 1.0',
        "headgate_router_domains 1.0",
        "headgate_router_accounted_total 5.0",
    ]
    assert [line for line in expected if line not in lines] == []
