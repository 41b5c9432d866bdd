"""Ports for servers of tests."""
import socket


def free_ports(count):
    """Ports nobody listens on; all are held until the last is chosen, so that they differ."""
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports
