from headgate.origin.gateway.clients import ClientConnections


def test_each_client_has_as_many_connections_as_allowed() -> None:
    clients = ClientConnections(2)
    first, second = clients.enter("192.0.2.1"), clients.enter("192.0.2.1")
    assert first
    assert first == second
    assert clients.enter("192.0.2.1") == b""
    assert clients.enter("192.0.2.2")
    clients.leave(first)
    assert clients.enter("192.0.2.1") == first
    assert clients.enter("192.0.2.1") == b""


def test_ipv6_addresses_count_by_network_and_mapped_ones_as_ipv4() -> None:
    clients = ClientConnections(1)
    assert clients.enter("2001:db8::1")
    assert clients.enter("2001:db8::ffff:2") == b""
    assert clients.enter("2001:db8:0:1::1")
    assert clients.enter("192.0.2.1")
    assert clients.enter("::ffff:192.0.2.1") == b""


def test_a_client_that_left_takes_no_memory() -> None:
    clients = ClientConnections(0)
    entered = [clients.enter(f"192.0.2.{number % 100}") for number in range(300)]
    assert all(entered)
    for client in entered:
        clients.leave(client)
        clients.leave(b"")
    assert clients._open == {}
