from headgate.observe import DomainState, SidecarMasterState, SidecarState, sidecar_metrics
from headgate.observe.admin import Metrics

STATE = SidecarState(
    "nginx-lua",
    domains=(DomainState("api", accepted=4, rejected=1),),
    masters=(SidecarMasterState("10.0.0.5:10004", up=True), SidecarMasterState("10.0.0.6:10004")),
    counters={"link_sent": 5},
)


def test_metrics():
    text, _ = Metrics(sidecar_metrics).write(STATE)
    lines = text.decode().splitlines()
    expected = [
        'headgate_requests_total{domain="api",outcome="accepted"} 4.0',
        'headgate_requests_total{domain="api",outcome="rejected"} 1.0',
        'headgate_master_up{master="10.0.0.5:10004"} 1.0',
        'headgate_master_up{master="10.0.0.6:10004"} 0.0',
        "headgate_link_sent_total 5.0",
    ]
    assert [line for line in expected if line not in lines] == []
