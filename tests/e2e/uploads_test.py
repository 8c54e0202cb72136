"""Files of workers on their way to the registry: over a cut link and a killed agent, with the limits
of the work list, and back as a Model that serves."""
import hashlib, http.client, json, os, pathlib, random, re, shutil, signal, socket, subprocess, sys, tarfile, tempfile, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402
from faulty_link import FaultyLink  # noqa: E402

MIB = 1 << 20
MODEL = pathlib.Path(__file__).resolve().parents[2] / 'examples/digits/models/4'


def worker(name, max_bytes=None, uid='u1'):
    uploads = {'uploads': {'maxBytes': max_bytes}} if max_bytes else {}
    return {'key': 'default/' + name, 'uid': uid, 'owner': 'Experiment/digits', 'assignment': {}, **uploads}


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__('localhost', timeout=m.seconds(60))
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(m.seconds(60))
        self.sock.connect(self.path)


class Node(unittest.TestCase):
    """A node behind a gateway, and the registry of `varda up`."""

    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        self.varda = m.Machine(self.work / 'cloud', nodes=['cloud=cloud'])
        self.data, self.agent, self.link = self.work / 'line7', None, None
        self.addCleanup(self.clean_up)
        self.link = FaultyLink(self.start_gateway())
        token = self.work / 'line7.token'
        token.write_text(self.varda.varda('join-token', '--node', 'line7'))
        token.chmod(0o600)
        self.command = [m.VARDA, 'agent', *m.LOOPBACK, '--node', 'line7', '--gateway', 'https://127.0.0.1:%d' % self.link.port, '--join-token-file', str(token),
                        '--data-dir', str(self.data)]
        self.start()

    def clean_up(self):
        if self.agent:
            self.agent.kill()
            self.agent.wait()
        if not self._outcome.success:
            print(*(self.work / 'agent.log').read_text().splitlines()[-40:], sep='\n', file=sys.stderr)
            self.varda.show_logs()
        self.varda.close()
        if self.link:
            self.link.close()
        shutil.rmtree(self.work, ignore_errors=True)

    def start_gateway(self):
        """Starts the cloud; returns the gateway's port."""
        line = self.varda.up('--gateway', '127.0.0.1:0', '--registry', '127.0.0.1:0')
        return int(line.split('gateway https://127.0.0.1:')[1].split(',')[0])

    def start(self):
        environment = {k: v for k, v in os.environ.items() if k != 'KUBECONFIG'}
        with open(self.work / 'agent.log', 'ab') as log:
            self.agent = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)

    def kill(self):
        self.agent.send_signal(signal.SIGKILL)
        self.agent.wait()

    def expect(self, *workers):
        """Writes the expected workers, like a controller of jobs."""
        m.wait_until('the node is registered', lambda: self.varda.kubectl('patch', 'edgenode', 'line7', '--type', 'merge', '-p', json.dumps(
            {'spec': {'workers': workers}}), check=False).returncode == 0)

    def artifact(self, worker_name, name):
        for one in self.varda.get('edgenode', 'line7').get('status', {}).get('workers', []):
            if one['key'] == 'default/' + worker_name:
                return one['report'].get('artifacts', {}).get(name, {})
        return {}

    def put(self, worker_name, name, data, method='PUT', **headers):
        """(status, headers, JSON) of the worker API. The file of a new token exists a moment before
        the agent accepts the token."""
        token = m.wait_until('a token', lambda: (self.data / 'workers/default' / worker_name / 'token').read_text())

        def answer():
            connection = UnixConnection(self.data / 'worker/worker.sock')
            try:
                connection.request(method, '/v1/artifacts/' + name, body=data, headers={'Authorization': 'Bearer ' + token, **headers})
                response = connection.getresponse()
                text = response.read()
                return response.status != 401 and (response.status, dict(response.getheaders()), json.loads(text) if text else None)
            finally:
                connection.close()
        return m.wait_until('the agent accepts the token', answer)

    def sent(self):
        """Bytes of unfinished uploads in the registry."""
        return sum(path.stat().st_size for path in (self.varda.dir / 'registry/uploads').glob('*'))

    def stored(self, data):
        path = self.varda.dir / 'registry/blobs' / hashlib.sha256(data).hexdigest()
        return path.exists() and path.read_bytes() == data


class Uploads(Node):
    def test_accepted_file_arrives_despite_a_cut_link_and_a_killed_agent(self):
        self.expect(worker('train', 100 * MIB))
        data = random.Random(1).randbytes(60 * MIB)
        # The worker sends half, the agent is killed, the worker continues.
        half = len(data) // 2
        status, headers, _ = self.put('train', 'weights', data[:half], **{'Content-Range': 'bytes 0-%d/%d' % (half - 1, len(data))})
        self.assertEqual((status, headers.get('Upload-Offset')), (202, str(half)))
        self.kill()
        self.start()
        status, headers, _ = m.wait_until('the socket', lambda: self.put('train', 'weights', None, method='HEAD'))
        self.assertEqual((status, headers.get('Upload-Offset')), (404, str(half)))
        status, _, answer = self.put('train', 'weights', data[half:], **{'Content-Range': 'bytes %d-%d/%d' % (half, len(data) - 1, len(data))})
        self.assertEqual((status, answer['sha256'], answer['durable']), (201, hashlib.sha256(data).hexdigest(), True))
        self.assertEqual(self.put('train', 'weights', data)[0], 200, 'a repeated request')
        self.assertEqual(self.put('train', 'weights', data[:-1] + b'x')[0], 409)
        # The link is cut in the middle, then the agent is killed in the middle.
        m.wait_until('some bytes in the registry', lambda: self.sent() > 5 * MIB or self.stored(data), every=0.01)
        self.link.set('cut')
        before = self.sent()
        m.wait_until('the interruption in the report or the log', lambda: 'upload interrupted' in (self.work / 'agent.log').read_text() or self.stored(data))
        self.link.set('down')
        self.kill()
        self.start()
        self.link.set('none')
        self.assertGreaterEqual(self.sent() or len(data), before, 'the registry keeps what it has')
        report = m.wait_until('the upload in the report', lambda: (lambda one: one if one.get('state') == 'Uploaded' else None)(self.artifact('train', 'weights')))
        self.assertEqual(report, {'sha256': hashlib.sha256(data).hexdigest(), 'bytes': len(data), 'sent': len(data), 'state': 'Uploaded'})
        self.assertTrue(self.stored(data))
        m.wait_until('the copy of the agent removed', lambda: not list((self.data / 'uploads').iterdir()))

    def test_work_list_limits_uploads(self):
        self.expect(worker('train', MIB), worker('eval'))
        status, _, answer = self.put('eval', 'a', b'x')
        self.assertEqual(status, 403)
        self.assertIn('uploads', answer['message'])
        self.assertEqual(self.put('train', 'a', b'x' * (MIB + 1))[0], 413)
        self.assertEqual(self.put('train', '..', b'x')[0], 400)
        # A node that ignores the limit meets the gateway.
        (self.work / 'piece').write_bytes(b'hello')
        done = subprocess.run(['curl', '-sS', '-k', '--noproxy', '*', '--cert', str(self.data / 'identity/cert.pem'), '--key', str(self.data / 'identity/key.pem'),
                                  '-T', str(self.work / 'piece'), '-H', 'Content-Range: bytes 0-4/%d' % (MIB + 1), '-w', '\n%{http_code}',
                                  'https://127.0.0.1:%d/v1/blobs/sha256:%s' % (self.link.port, 'a' * 64)], capture_output=True)
        self.assertIn(b'allows %d' % MIB, done.stdout, done.stderr)
        self.assertTrue(done.stdout.endswith(b'413'), done.stdout)


class StandaloneGateway(Node):
    def start_gateway(self):
        registry = self.varda.up('--registry', '127.0.0.1:0').split('registry ')[1].split(',')[0]
        log = self.work / 'gateway.log'
        with open(log, 'wb') as out:
            gateway = subprocess.Popen([m.VARDA, 'gateway', '--kubeconfig', self.varda.kubeconfig, '--admin', 'unix:' + str(self.work / 'admin.sock'),
                                        '--listen', '127.0.0.1:0', '--registry', registry, '--registry-token-file', str(self.varda.dir / 'registry.token')],
                                       stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self.addCleanup(gateway.wait)
        self.addCleanup(gateway.terminate)
        return int(m.wait_until('the gateway', lambda: log.read_text().split('gateway=127.0.0.1:')[1].split()[0]))

    def test_gateway_forwards_to_the_registry_of_its_flag(self):
        self.expect(worker('train', MIB))
        data = random.Random(2).randbytes(MIB)
        self.assertEqual(self.put('train', 'result', data)[0], 201)
        m.wait_until('the file in the registry', lambda: self.stored(data))

    def forwarded(self):
        """Bytes of files that nodes sent through the gateway."""
        metrics = subprocess.run(['curl', '-sSf', '--unix-socket', str(self.work / 'admin.sock'), 'http://localhost/metrics'], capture_output=True, check=True,
                                 text=True, timeout=m.seconds(30)).stdout
        return int(float(re.search(r'^varda_gateway_upload_bytes_total (\S+)', metrics, re.M)[1]))

    def test_changes_of_an_earlier_result_go_up(self):
        self.expect(worker('train', 30 * MIB))
        data = random.Random(3).randbytes(20 * MIB)
        changed = data[:7 * MIB] + random.Random(4).randbytes(MIB) + data[8 * MIB:]
        self.assertEqual(self.put('train', 'weights-1', data)[0], 201)
        m.wait_until('the first upload', lambda: self.artifact('train', 'weights-1').get('state') == 'Uploaded')
        before = self.forwarded()
        self.assertEqual(before, len(data))
        self.kill()  # the record of the first upload outlives the agent
        self.start()
        m.wait_until('the socket', lambda: self.put('train', 'weights-1', None, method='HEAD')[0] == 200)
        self.assertEqual(self.put('train', 'weights-2', changed)[0], 201)
        m.wait_until('the changed file in the registry', lambda: self.stored(changed))
        m.wait_until('the second upload', lambda: self.artifact('train', 'weights-2').get('state') == 'Uploaded')
        self.assertLessEqual(self.forwarded() - before, 1.1 * MIB)


# A worker that makes a file and a directory, hands them over with the example, and stays. It hands
# the directory over twice, like a worker that lost the answer.
WORKER = """
import os, pathlib, sys, tempfile, time
sys.path.insert(0, %r)
import upload
with tempfile.NamedTemporaryFile() as result:
    result.write(b'result' * 500000)
    result.flush()
    print(upload.hand_over(result.name, 'result-1'), flush=True)
with tempfile.TemporaryDirectory() as folder:
    for name in ('b.txt', 'a/b.txt', 'a/a.txt'):
        path = pathlib.Path(folder, name)
        path.parent.mkdir(exist_ok=True)
        path.write_text('content of ' + name)
    first = upload.hand_over(folder, 'folder-1')
    os.utime(pathlib.Path(folder, 'b.txt'), (1, 1))
    assert upload.hand_over(folder, 'folder-1') == first
time.sleep(3600)
"""

SERVICE = """
apiVersion: sedna.io/v1alpha1
kind: JointInferenceService
metadata: {name: pets}
spec:
  edgeWorker:
    model: {name: digits}
    nodeName: edge0
    uploads: {maxBytes: 4000000}
    workerSpec: {containers: [{name: worker, image: "uploader:1"}]}
  cloudWorker:
    model: {name: digits}
    nodeName: cloud
    workerSpec: {containers: [{image: "cloud-worker:1"}]}
"""


class Registry(unittest.TestCase):
    def test_worker_of_a_service_uploads_its_result(self):
        examples = m.ROOT / 'examples/workers/python'
        with m.Machine() as varda, tempfile.TemporaryDirectory(prefix='varda-e2e-') as work:
            program = pathlib.Path(work) / 'worker.py'  # pods see nothing of varda.dir
            program.write_text(WORKER % str(examples))
            varda.up('--registry', '127.0.0.1:0', '--image', 'uploader:1=%s %s' % (sys.executable, program),
                     '--image', 'cloud-worker:1=%s %s' % (sys.executable, examples / 'cloud_worker.py'))
            varda.varda('push', str(MODEL), '--name', 'digits')
            varda.kubectl('create', '-f', '-', input=SERVICE)
            data = b'result' * 500000

            def uploaded(name):
                reports = [one['report'].get('artifacts', {}).get(name, {}) for one in varda.get('edgenode', 'edge0')['status']['workers']]
                return [one for one in reports if one.get('state') == 'Uploaded']
            one, = m.wait_until('the result in the registry', lambda: uploaded('result-1'))
            self.assertEqual((one['sha256'], one['bytes']), (hashlib.sha256(data).hexdigest(), len(data)))
            self.assertEqual((varda.dir / 'registry/blobs' / one['sha256']).read_bytes(), data)
            one, = m.wait_until('the directory in the registry', lambda: uploaded('folder-1'))
            with tarfile.open(varda.dir / 'registry/blobs' / one['sha256']) as archive:
                content = {name: archive.extractfile(name).read().decode() for name in archive.getnames()}
            self.assertEqual(content, {name: 'content of ' + name for name in ('a/a.txt', 'a/b.txt', 'b.txt')})

    def test_pushed_model_serves_and_stays(self):
        with m.Machine() as varda:
            line = varda.up('--registry', '127.0.0.1:0')
            registry = line.split('registry ')[1].split(',')[0]
            url = varda.varda('push', str(MODEL), '--name', 'digits').strip()
            self.assertTrue(url.startswith(registry + '/v1/blobs/sha256:'), url)
            varda.kubectl('create', '-f', '-', input=json.dumps({
                'apiVersion': 'ai.kubeedge.io/v1alpha1', 'kind': 'InferenceModel', 'metadata': {'name': 'digits'},
                'spec': {'modelName': 'digits', 'deployToLayer': 'edge', 'frameworkType': 'onnx', 'nodeName': 'edge0', 'servingPort': 8080, 'replicas': 1,
                         'modelRef': {'name': 'digits'}}}))
            varda.ready('digits')
            # one file, which needs no archive
            url = varda.varda('push', str(MODEL / 'model.onnx'), '--name', 'one-file').strip()
            self.assertTrue(url.endswith('/model.onnx'), url)
            varda.kubectl('patch', 'inferencemodel', 'digits', '--type=merge', '-p', '{"spec": {"modelRef": {"name": "one-file"}}}')
            version = hashlib.sha256((MODEL / 'model.onnx').read_bytes()).hexdigest()[:12]
            varda.ready('digits', version)
            varda.varda('pull', 'digits', '--extract', '-o', str(varda.dir / 'pulled'))
            self.assertEqual((varda.dir / 'pulled/model.onnx').read_bytes(), (MODEL / 'model.onnx').read_bytes())
            varda.down()
            self.assertIn('registry %s,' % registry, varda.up(), 'the address stays')


if __name__ == '__main__':
    unittest.main()
