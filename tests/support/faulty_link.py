"""A TCP link between two programs with the faults of real links, one at a time, set by the test."""
import random, select, socket, threading, time

PAGE = b'<html><body>Please accept our terms.</body></html>'
PORTAL = b'HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s' % (len(PAGE), PAGE)


class FaultyLink:
    """Listens on a free port of this machine and forwards to the port `target`. Faults, by set():

    none      everything gets through
    slow      each piece is late by 0.3 s, in both directions
    cut       a connection breaks after 6 to 30 KB, in the middle of a message
    flip      one bit in every 8 to 30 KB is inverted
    stall     a pulled cable: no bytes get through, nothing is closed, and open connections stay
              dead for ever
    portal    a login page answers every request, and connections that were open are closed
    down      the port refuses connections, and connections that were open are closed
    """

    def __init__(self, target):
        self.target, self.fault, self.hits, self.stopping = target, 'none', 0, False
        self.lock, self.pairs = threading.Lock(), set()
        self.listener = self.listen(0)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    @staticmethod
    def listen(port):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(('127.0.0.1', port))
        listener.listen(64)
        return listener

    def set(self, fault):
        with self.lock:
            self.fault, self.hits = fault, 0
            pairs = list(self.pairs)
        for pair in pairs:
            if fault == 'stall':
                pair.dead = True
            elif fault in ('portal', 'down'):
                pair.close()

    def close(self):
        self.stopping = True
        self.listener.close()
        with self.lock:
            pairs = list(self.pairs)
        for pair in pairs:
            pair.close()

    def accept(self):
        while not self.stopping:
            try:
                ready, _, _ = select.select([self.listener], [], [], 0.2)
                if not ready:
                    continue
                client, _ = self.listener.accept()
            except (OSError, ValueError):
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with self.lock:
            self.hits += 1
            fault = self.fault
        if fault == 'down':
            client.close()
        elif fault == 'portal':
            with client:
                client.settimeout(10)
                try:
                    client.recv(1 << 16)
                    client.sendall(PORTAL)
                    client.shutdown(socket.SHUT_WR)
                    while client.recv(1 << 16):
                        pass
                except OSError:
                    pass
        else:
            try:
                server = socket.create_connection(('127.0.0.1', self.target), 10)
            except OSError:
                client.close()
                return
            Pair(self, client, server, dead=fault == 'stall').run()


class Pair:
    """One connection on both sides of the link."""

    def __init__(self, link, client, server, dead):
        self.link, self.ends, self.dead, self.closed = link, (client, server), dead, False
        self.sent = 0
        self.cut_at, self.flip_at = random.randint(6 << 10, 30 << 10), random.randint(8 << 10, 30 << 10)
        with link.lock:
            link.pairs.add(self)

    def run(self):
        threads = [threading.Thread(target=self.copy, args=(a, b), daemon=True) for a, b in (self.ends, self.ends[::-1])]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.close()

    def close(self):
        with self.link.lock:
            self.link.pairs.discard(self)
            self.closed = True
        for end in self.ends:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()

    def copy(self, source, sink):
        try:
            while not self.closed and not self.link.stopping:
                if not select.select([source], [], [], 0.2)[0]:
                    continue
                if self.dead:  # the bytes stay unread, and the connection stays open
                    time.sleep(0.2)
                    continue
                data = source.recv(1 << 14)
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    return
                fault = self.link.fault
                if fault == 'slow':
                    time.sleep(0.3)
                self.sent += len(data)
                if fault == 'cut' and self.sent >= self.cut_at:
                    sink.sendall(data[:len(data) // 2])
                    return self.close()
                if fault == 'flip' and self.sent >= self.flip_at:
                    self.flip_at += random.randint(8 << 10, 30 << 10)
                    at = random.randrange(len(data))
                    data = data[:at] + bytes([data[at] ^ (1 << random.randrange(8))]) + data[at + 1:]
                sink.sendall(data)
        except (OSError, ValueError):
            self.close()
