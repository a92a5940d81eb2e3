# SPDX-License-Identifier: Apache-2.0
"""A proxy between a client and a server of this machine: it keeps what passes, and changes it when
the test wants that."""
import socket
import threading


class Proxy:
    """Listens at `port` and passes every connection on to `target` (a port), both ways."""

    def __init__(self, target, address="127.0.0.1"):
        self.target = target
        self.seen = b""
        self.seen_lock = threading.Lock()
        self.change = lambda data: data  # applied to what the server sends
        self.mute_s = 0  # how late the server's first bytes of each connection are
        self.is_closed = threading.Event()
        self.listener = socket.create_server((address, 0))
        self.port = self.listener.getsockname()[1]
        self.socks, self.threads = [], []
        self._start(self._accept)

    def _start(self, work, *words):
        thread = threading.Thread(target=work, args=words, daemon=True)
        self.threads.append(thread)
        thread.start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.target))
            self.socks += [client, server]
            self._start(self._pass, client, server, False)
            self._start(self._pass, server, client, True)

    def _pass(self, source, sink, is_reply):
        try:
            if is_reply and self.mute_s:
                self.is_closed.wait(self.mute_s)
            while data := source.recv(65536):
                with self.seen_lock:
                    self.seen += data
                sink.sendall(self.change(data) if is_reply else data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            sink.close()

    def close(self):
        self.is_closed.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for sock in self.socks:
            sock.close()
        for thread in self.threads:
            thread.join(10)
