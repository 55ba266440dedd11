import pytest
import zmq

from headgate.errors import ConfigurationError
from headgate.link.gatekeeper import GatekeeperCounters
from headgate.link.master_connection import MasterConnection
from headgate.link.sockets import bind_pair
from tests.unit.link.peers import PATIENCE, new_master, until


def connection(context, address, **options):
    return MasterConnection(context, address, counters=GatekeeperCounters(), **options)


def test_a_master_is_up_when_both_sockets_are_connected(context):
    """A master that starts again is connected to twice, up to two seconds apart: until then no control arrives."""
    accounting, control = context.socket(zmq.SUB), context.socket(zmq.XPUB)
    accounting.subscribe(b"")
    address = bind_pair(accounting, control, "tcp://127.0.0.1:0")
    control.unbind(address.control)
    changes = []
    one = connection(context, address.accounting, changed=lambda: changes.append(one.is_up))

    def turn():
        accounting.poll(1)
        one.receive_subscriptions(1)
        one.connections.turn()

    until(lambda: one.is_subscribed and changes, turn)
    assert not one.is_up
    control.bind(address.control)
    until(lambda: one.is_up, turn)
    control.close(linger=0)
    until(lambda: not one.is_up, turn)
    assert one.is_subscribed
    assert changes == [False, True, False]
    one.close()


def test_a_full_queue_is_reported(context):
    master = new_master(context, "inproc://bus", b"", hwm=10)
    one = connection(context, "inproc://bus", queue=10)
    master.touch()
    assert not one.receive_subscriptions(10)
    assert one.is_up
    sent = [one.send([b"api\0", b"x"]) for _ in range(100)]
    assert sent == [True] * sent.count(True) + [False] * sent.count(False)
    assert 10 <= sent.count(True) <= 20
    one.close()


def test_a_master_receives_what_is_queued_when_its_connection_is_closed(context):
    accounting, control = context.socket(zmq.SUB), context.socket(zmq.XPUB)
    accounting.subscribe(b"")
    one = connection(context, bind_pair(accounting, control, "tcp://127.0.0.1:0").accounting)
    while not one.is_subscribed:
        accounting.poll(1)  # it sends its subscription when it is used
        one.receive_subscriptions(1)
    sent = [one.send([b"api\0", b"x" * 10_000]) for _ in range(400)].count(True)
    one.close()
    for _ in range(sent):
        assert accounting.poll(PATIENCE * 1_000)
        accounting.recv_multipart()


def test_a_repeated_subscription_reaches_the_master(context):
    accounting, control = context.socket(zmq.SUB), context.socket(zmq.XPUB)
    control.setsockopt(zmq.XPUB_VERBOSER, 1)
    one = connection(context, bind_pair(accounting, control, "tcp://127.0.0.1:0").accounting)
    for _ in range(2):
        one.control.subscribe(b"api\0")
        assert control.poll(10_000)
        assert control.recv() == b"\1api\0"
    for _ in range(2):  # the last of the two ends the subscription
        one.control.unsubscribe(b"api\0")
    assert control.poll(10_000)
    assert control.recv() == b"\0api\0"
    assert not control.poll(50)
    one.close()


def test_an_invalid_address_leaves_no_socket_open(context):
    with pytest.raises(ConfigurationError, match="invalid master address"):
        connection(context, "http://127.0.0.1")
