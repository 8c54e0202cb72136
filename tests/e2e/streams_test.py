"""Streams of workers: from a node behind the gateway to a server that knows nothing of Varda but the
PROXY header, over cut links and restarts, and from a node of `varda up` without a gateway."""
import json, pathlib, socket, struct, subprocess, sys, threading, time, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import machine as m  # noqa: E402
import uploads_test  # noqa: E402

SIGNATURE = b'\r\n\r\n\0\r\nQUIT\n'
NODE, WORKER, JOB, EXPIRY, SIGNED = 0xE0, 0xE1, 0xE2, 0xE3, 0xE4


def exactly(connection, count):
    out = b''
    while len(out) < count:
        piece = connection.recv(count - len(out))
        if not piece:
            raise EOFError(out)
        out += piece
    return out


class EchoServer:
    """Reads a PROXY header of version 2, then returns every byte in upper case."""

    def __init__(self):
        self.headers, self.listener = [], socket.create_server(('127.0.0.1', 0))
        self.address = '127.0.0.1:%d' % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        try:
            fixed = exactly(connection, 16)
            assert fixed[:12] == SIGNATURE and fixed[12] == 0x21, fixed
            rest = exactly(connection, struct.unpack('>H', fixed[14:])[0])
            values, at = {}, {0x00: 0, 0x11: 12, 0x21: 36}[fixed[13]]
            while at < len(rest):
                kind, length = struct.unpack('>BH', rest[at:at + 3])
                values[kind] = rest[at + 3:at + 3 + length]
                at += 3 + length
            self.headers.append(values)
            while piece := connection.recv(1 << 16):
                connection.sendall(piece.upper())
            connection.sendall(b'[end]')
        except (OSError, EOFError):
            pass
        finally:
            connection.close()

    def close(self):
        self.listener.close()


def worker(name, *streams, uid='job-1'):
    return {'key': 'default/' + name, 'uid': uid, 'owner': 'Experiment/digits', 'assignment': {}, 'streams': list(streams)}


class Asker:
    """Opens streams at the worker API of an agent."""

    def __init__(self, data):
        self.data = data

    def token(self, name):
        return m.wait_until('a token', lambda: (self.data / 'workers/default' / name / 'token').read_text())

    def ask(self, token, stream):
        """(status, connection): the connection carries the stream if the status is 101."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(m.seconds(60))
        connection.connect(str(self.data / 'worker/worker.sock'))
        connection.sendall(('GET /v1/streams/%s HTTP/1.1\r\nHost: agent\r\nAuthorization: Bearer %s\r\n'
                            'Connection: Upgrade\r\nUpgrade: varda-stream\r\n\r\n' % (stream, token)).encode())
        head = b''
        while not head.endswith(b'\r\n\r\n'):
            head += exactly(connection, 1)
        return int(head.split()[1]), connection

    def open(self, name, stream):
        def attempt():
            status, connection = self.ask(self.token(name), stream)
            if status == 101:
                return connection
            connection.close()
        return m.wait_until('a stream', attempt)


def echo(connection, text):
    connection.sendall(text)
    return exactly(connection, len(text))


def broken(connection):
    try:
        return connection.recv(1) == b''
    except OSError:
        return True


class Behind(uploads_test.Node):
    """A node behind a gateway."""

    def setUp(self):
        super().setUp()
        self.server = EchoServer()
        self.addCleanup(self.server.close)
        self.asker = Asker(self.data)

    def stream(self, **more):
        return {'name': 'echo', 'address': self.server.address, 'identity': True, **more}

    def port(self):
        def probe():
            for one in self.varda.get('edgenode', 'line7').get('status', {}).get('workers', []):
                for stream in one.get('streams', []):
                    return stream.get('address')
        return m.wait_until('a port in the report', probe)

    def test_worker_reaches_a_server_with_its_identity(self):
        self.expect(worker('train', self.stream()), worker('eval'))
        connection = self.asker.open('train', 'echo')
        self.assertEqual(echo(connection, b'hello'), b'HELLO')
        header = self.server.headers[0]
        self.assertEqual((header[NODE], header[WORKER], header[JOB]), (b'line7', b'default/train', b'job-1'))
        self.assertLess(abs(struct.unpack('>Q', header[EXPIRY])[0] - time.time() - 60), 30)
        self.check_signature(header)
        # A header in the stream is payload.
        self.assertEqual(echo(connection, SIGNATURE + b'\x21'), SIGNATURE + b'\x21')
        connection.shutdown(socket.SHUT_WR)
        self.assertEqual(exactly(connection, 5), b'[end]')
        self.assertTrue(broken(connection))
        # Other tokens and other workers.
        self.assertEqual(self.asker.ask('varda-worker.x.y', 'echo')[0], 401)
        self.assertEqual(self.asker.ask(self.asker.token('eval'), 'echo')[0], 404)
        self.assertEqual(self.asker.ask(self.asker.token('train'), 'other')[0], 404)

    def check_signature(self, header):
        """Checks with OpenSSL what the gateway signed."""
        ca, text, signature = self.work / 'ca.pem', self.work / 'text', self.work / 'signature'
        ca.write_text(self.varda.get('configmap', 'varda-gateway', '-n', 'varda-system')['data']['ca.crt'])
        key = self.work / 'key.pem'
        key.write_bytes(subprocess.run(['openssl', 'x509', '-in', str(ca), '-pubkey', '-noout'], capture_output=True, check=True).stdout)
        text.write_bytes(b'varda-stream/1\n' + b''.join(struct.pack('>BH', k, len(header[k])) + header[k] for k in (NODE, WORKER, JOB, EXPIRY)))
        signature.write_bytes(header[SIGNED])
        done = subprocess.run(['openssl', 'dgst', '-sha256', '-verify', str(key), '-signature', str(signature), str(text)], capture_output=True)
        self.assertEqual(done.stdout.strip(), b'Verified OK', done.stderr)

    def test_port_leads_to_the_server_and_stays_over_a_restart(self):
        self.expect(worker('train', self.stream(listen=True)))
        address = self.port()
        host, port = address.rsplit(':', 1)

        def through_port():
            try:
                with socket.create_connection((host, int(port)), timeout=m.seconds(60)) as connection:
                    return echo(connection, b'port') == b'PORT'
            except (OSError, EOFError):
                return False
        m.wait_until('the port leads to the server', through_port)
        self.kill()
        self.assertFalse(through_port())
        self.start()
        m.wait_until('the port again', through_port)
        self.assertEqual(self.port(), address)
        self.expect(worker('train'))
        m.wait_until('the port closes', lambda: not through_port())

    def test_broken_link_breaks_the_stream_and_the_next_one_works(self):
        self.expect(worker('train', self.stream()))
        connection = self.asker.open('train', 'echo')
        self.assertEqual(echo(connection, b'a'), b'A')
        self.link.set('down')
        self.assertTrue(broken(connection))
        self.assertEqual(self.asker.ask(self.asker.token('train'), 'echo')[0], 503)
        self.link.set('none')
        connection = self.asker.open('train', 'echo')
        self.assertEqual(echo(connection, b'b'), b'B')
        self.kill()
        self.assertTrue(broken(connection))
        self.start()
        connection = self.asker.open('train', 'echo')
        self.assertEqual(echo(connection, b'c'), b'C')
        # Another job of the same name, and the end of the permission.
        self.expect(worker('train', self.stream(), uid='job-2'))
        self.assertTrue(broken(connection))

        def of_the_next_job():
            # The gateway may see the change later than the node.
            opened = self.asker.open('train', 'echo')
            return self.server.headers[-1][JOB] == b'job-2' and opened
        connection = m.wait_until('a stream of the next job', of_the_next_job)
        self.expect(worker('train', uid='job-2'))
        self.assertTrue(broken(connection))

    def test_many_bytes_arrive_while_the_reader_is_slow(self):
        self.expect(worker('train', self.stream()))
        connection = self.asker.open('train', 'echo')
        data = bytes(range(97, 123)) * 200_000  # 5.2 MB

        sender = threading.Thread(target=connection.sendall, args=(data,))
        sender.start()
        received = b''.join(exactly(connection, len(data) // 20) for _ in range(20))
        sender.join()
        self.assertEqual(received, data.upper())


class WithoutAGateway(unittest.TestCase):
    def test_agent_of_varda_up_writes_an_unsigned_identity(self):
        with m.Machine(nodes=['edge0']) as varda:
            server = EchoServer()
            self.addCleanup(server.close)
            varda.up()
            entry = worker('train', {'name': 'echo', 'address': server.address, 'identity': True})
            m.wait_until('the node is registered', lambda: varda.kubectl(
                'patch', 'edgenode', 'edge0', '--type', 'merge', '-p', json.dumps({'spec': {'workers': [entry]}}), check=False).returncode == 0)
            socket_path = m.wait_until('the socket', lambda: next(iter(varda.dir.glob('**/worker/worker.sock')), None))
            connection = Asker(socket_path.parents[1]).open('train', 'echo')
            self.assertEqual(echo(connection, b'local'), b'LOCAL')
            self.assertEqual(server.headers, [{NODE: b'edge0', WORKER: b'default/train', JOB: b'job-1'}])


if __name__ == '__main__':
    unittest.main()
