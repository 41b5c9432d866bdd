"""A TCP proxy that cuts connections at random moments, or lets them go silent."""
import random
import socket
import struct
import threading
import time


class CuttingProxy(object):
    """Forwards 127.0.0.1:port to an address. Between start_cutting and stop_cutting all connections are reset, again
    and again, after times drawn from `seed`. Where the caller reports its progress, intervals without any make the
    next ones longer: on a busy machine something must get through now and then."""

    def __init__(self, address, seed, longest=0.15):
        host, port = address.rsplit(":", 1)
        self._to = (host, int(port))
        self._random = random.Random(seed)
        self._longest = longest
        self._lock = threading.Lock()
        self._pairs = set()
        self._swallowed = set()
        self._cutting = threading.Event()
        self._closed = False
        self.cuts = 0
        self._progress = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        for work in (self._accept, self._cut):
            threading.Thread(target=work, daemon=True).start()

    def start_cutting(self):
        self._cutting.set()

    def stop_cutting(self):
        self._cutting.clear()

    def swallow(self, there=True, back=True):
        """Data on the connections that exist now is read and discarded; new connections work."""
        with self._lock:
            for near, far in self._pairs:
                self._swallowed.update([near] if there else [])
                self._swallowed.update([far] if back else [])

    def progress(self):
        self._progress.set()

    def close(self):
        self._closed = True
        self._listener.close()
        self._reset_all()

    def _accept(self):
        while not self._closed:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._to)
            except OSError:
                continue
            pair = (near, far)
            for end in pair:
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._pairs.add(pair)
            for source, sink in (pair, pair[::-1]):
                threading.Thread(target=self._pump, args=(source, sink, pair), daemon=True).start()

    def _pump(self, source, sink, pair):
        try:
            while True:
                data = source.recv(65536)
                if not data:
                    break
                if source not in self._swallowed:
                    sink.sendall(data)
        except OSError:
            pass
        self._reset(pair)

    def _reset(self, pair):
        with self._lock:
            if pair not in self._pairs:
                return False
            self._pairs.remove(pair)
        for end in pair:
            try:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()
        return True

    def _reset_all(self):
        with self._lock:
            pairs = list(self._pairs)
        return sum(self._reset(pair) for pair in pairs)

    def _cut(self):
        longest = self._longest
        while not self._closed:
            self._cutting.wait()
            time.sleep(self._random.uniform(0, longest))
            longest = self._longest if self._progress.is_set() else min(2 * longest, 10)
            self._progress.clear()
            if self._cutting.is_set():
                self.cuts += self._reset_all()
