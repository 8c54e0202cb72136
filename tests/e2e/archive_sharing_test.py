"""Nodes of one site share the archives of InferenceModels, with real processes: the file server
sends one copy for the whole site."""
import contextlib, hashlib, http.server, io, json, os, pathlib, random, shutil, signal, subprocess, sys, tarfile, tempfile, threading, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402

NODES = ('line0', 'line1', 'line2', 'line3')


def archive(size):
    """A model's archive that does not compress, like real weights."""
    out, noise = io.BytesIO(), random.Random(size).randbytes(size)
    with tarfile.open(fileobj=out, mode='w') as tar:
        info = tarfile.TarInfo('model.onnx')
        info.size = len(noise)
        tar.addfile(info, io.BytesIO(noise))
    return out.getvalue()


class Origin:
    """Serves one archive with ranges and counts the bytes it sends. Pauses at `hold_at` until `go`
    is set."""

    def __init__(self, data, hold_at=None):
        self.data, self.sent, self.hold_at = data, 0, hold_at
        self.held, self.go, self.lock = threading.Event(), threading.Event(), threading.Lock()
        origin = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def log_message(self, *args):
                pass

            def handle(self):
                with contextlib.suppress(OSError):  # a killed client resets the connection
                    super().handle()

            def do_GET(self):
                requested = self.headers.get('Range')
                at = int(requested.removeprefix('bytes=').split('-')[0]) if requested else 0
                self.send_response(206 if requested else 200)
                if requested:
                    self.send_header('Content-Range', 'bytes %d-%d/%d' % (at, len(data) - 1, len(data)))
                self.send_header('ETag', '"e"')
                self.send_header('Content-Length', str(len(data) - at))
                self.end_headers()
                while at < len(data):
                    if origin.hold_at is not None and at >= origin.hold_at and not origin.go.is_set():
                        origin.held.set()
                        origin.go.wait()
                    piece = data[at:at + (64 << 10)]
                    with origin.lock:
                        origin.sent += len(piece)
                    self.wfile.write(piece)
                    at += len(piece)

        self.server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.server.daemon_threads = True
        self.url = 'http://127.0.0.1:%d/model.tar' % self.server.server_port
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.go.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class ArchiveSharing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        cls.addClassCleanup(shutil.rmtree, cls.work, ignore_errors=True)
        cls.agents, cls.origins = {}, []
        cls.varda = m.Machine(cls.work / 'up', nodes=['cloud=cloud'])
        cls.addClassCleanup(cls.stop)
        line = cls.varda.up('--gateway', '127.0.0.1:0')
        cls.gateway = line.split('gateway ')[1].split(',')[0].strip()
        for node in NODES:
            token = cls.work / ('token-' + node)
            with open(os.open(token, os.O_WRONLY | os.O_CREAT, 0o600), 'w') as f:
                f.write(cls.varda.varda('join-token', '--node', node))
            cls.start(node, token)

    @classmethod
    def stop(cls):
        for node in list(cls.agents):
            cls.end(node)
        for origin in cls.origins:
            origin.close()
        cls.varda.close()

    def setUp(self):
        for node in NODES:
            m.wait_until(node + ' to be reached by others', lambda: self.joined(node))

    @classmethod
    def start(cls, node, token=None):
        command = [m.VARDA, 'agent', *m.LOOPBACK, '--node', node, '--gateway', cls.gateway, '--data-dir', str(cls.work / node), '--runner', 'process',
                   '--peer-listen', '127.0.0.1:0']
        if token:
            command += ['--join-token-file', str(token)]
        with open(cls.work / (node + '.log'), 'ab') as log:
            environment = {k: v for k, v in os.environ.items() if k != 'KUBECONFIG'}
            cls.agents[node] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)

    @classmethod
    def end(cls, node, how=signal.SIGTERM):
        agent = cls.agents.pop(node)
        with contextlib.suppress(ProcessLookupError):
            agent.send_signal(how)
        agent.wait(60)

    def joined(self, node):
        status = self.varda.get('edgenode', node).get('status', {})
        connected = any(c['type'] == 'Connected' and c['status'] == 'True' for c in status.get('conditions', []))
        return connected and status.get('peerUrl') and self.varda.get('node', node)

    def serve(self, size, hold_at=None):
        origin = Origin(archive(size), hold_at)
        self.origins.append(origin)
        return origin

    def apply(self, origin, nodes=NODES, name='m'):
        """Applies one model for each node, all with the same archive. No model server is requested:
        the test is about files."""
        digest = hashlib.sha256(origin.data).hexdigest()
        self.varda.kubectl('apply', '-f', '-', input=json.dumps({'apiVersion': 'v1', 'kind': 'List', 'items': [
            m.inference_model('%s-%s' % (name, node), 'edge', [('1', origin.url, digest)], '1', node=node, replicas=0) for node in nodes]}))

    def version(self, node, name='m'):
        models = {model['key']: model for model in self.varda.get('edgenode', node).get('status', {}).get('models', [])}
        return models['default/%s-%s' % (name, node)]['versions'][0]

    def assignment(self, node, name='m'):
        models = {model['key']: model for model in self.varda.get('edgenode', node)['spec'].get('models', [])}
        return models['default/%s-%s' % (name, node)]['versions'][0]

    def installed(self, origin, nodes=NODES, name='m'):
        for node in nodes:
            m.wait_until(node + ' to have it', lambda: self.version(node, name)['state'] == 'Ready')
            held = self.work / node / 'models/default' / ('%s-%s' % (name, node)) / '1/model.onnx'
            with tarfile.open(fileobj=io.BytesIO(origin.data)) as tar:
                self.assertEqual(held.read_bytes(), tar.extractfile('model.onnx').read(), node)

    def seed(self, nodes=NODES, name='m'):
        """The node that shares without peers: its work list has shareWith and no peers."""
        def probe():
            assignment = {node: self.assignment(node, name) for node in nodes}
            return [node for node in nodes if assignment[node].get('shareWith') and not assignment[node].get('peers')]
        return m.wait_until('a seed', probe)[0]

    def lists_peers(self, nodes, name):
        return all(self.assignment(node, name).get('shareWith') or self.assignment(node, name).get('peers') for node in nodes)

    def test_archive_is_downloaded_once_per_site_and_shared_by_peers(self):
        # The origin pauses until the nodes know of each other. A node that has the whole archive
        # before another node wants it keeps nothing to share.
        origin = self.serve(6 << 20, hold_at=1 << 20)
        self.apply(origin, NODES[:3], 'one')
        m.wait_until('lists that name others', lambda: self.lists_peers(NODES[:3], 'one'))
        origin.go.set()
        self.installed(origin, NODES[:3], 'one')
        self.assertEqual(origin.sent, len(origin.data), 'bytes from the file server')
        origin.close()
        self.origins.remove(origin)
        self.apply(origin, NODES, 'one')  # a fourth node
        self.installed(origin, NODES, 'one')
        holders = [node for node in NODES if (self.work / node / 'artifacts/.archives' / hashlib.sha256(origin.data).hexdigest()).exists()]
        self.assertEqual(len(holders), 2, 'the seed and one node in reserve keep the archive: %s' % holders)
        self.varda.kubectl('delete', 'inferencemodel', *('one-' + node for node in NODES))
        m.wait_until('the archives gone', lambda: not list(self.work.glob('line*/artifacts/.archives/*')))

    def test_peers_finish_the_download_of_a_killed_node(self):
        origin = self.serve(5 << 20, hold_at=3 << 20)
        self.apply(origin, NODES, 'two')
        self.assertTrue(origin.held.wait(180))
        m.wait_until('lists that name others', lambda: self.lists_peers(NODES, 'two'))
        seed = self.seed(NODES, 'two')
        self.end(seed, signal.SIGKILL)
        origin.go.set()
        others = [node for node in NODES if node != seed]
        self.installed(origin, others, 'two')
        self.start(seed)
        self.installed(origin, NODES, 'two')
        self.varda.kubectl('delete', 'inferencemodel', *('two-' + node for node in NODES))
        m.wait_until('the archives gone', lambda: not list(self.work.glob('line*/artifacts/.archives/*')))


if __name__ == '__main__':
    unittest.main()
