"""Ports for servers of tests, and waiting for their output."""
import os
import random
import select
import socket
import threading

# Below those that the system gives to connections: between the choice and the server's start no connection takes one by chance.
_RANGE = range(10000, 20000)
_BLOCK = 200
_random = random.Random(os.getpid() ^ random.SystemRandom().getrandbits(32))
_claims = []  # of this process, which end with it
_left = []
_lock = threading.Lock()


def _is_free(port):
    for family, address in (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"):
        try:
            with socket.socket(family) as one:
                if family == socket.AF_INET6:
                    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                # As a server that was there a moment ago may be started again at its port.
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                one.bind((address, port))
        except OSError as error:
            # A machine without IPv6 has no listener there either.
            if family == socket.AF_INET or "in use" in str(error):
                return False
    return True


def _claim_block():
    """Ports that no other process of tests chooses from: it holds a name of its own for them."""
    starts = list(_RANGE[::_BLOCK])
    _random.shuffle(starts)
    for start in starts:
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind("\0muster tests at port %d" % start)
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        ports = list(range(start, start + _BLOCK))
        _random.shuffle(ports)
        return ports
    raise AssertionError("all ports of %s are claimed by tests" % _RANGE)


def free_ports(count):
    """Ports without a listener, none of them given out before."""
    ports = []
    with _lock:
        while len(ports) < count:
            if not _left:
                _left.extend(_claim_block())
            port = _left.pop()
            if _is_free(port):
                ports.append(port)
    return ports


def readable(stream, seconds):
    """Whether `stream` has something to read, or has ended, within the time. Descriptors may be above select's 1024."""
    poll = select.poll()
    poll.register(stream, select.POLLIN)
    return bool(poll.poll(1000 * seconds))
