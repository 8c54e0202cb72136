"""Servers for other formats, with real processes.

The model is a TensorFlow model. tests/support/tensorflow_serving.py plays its server, which knows
versions only as numbers.
"""
import http.client, json, pathlib, shutil, sys, tempfile, threading, unittest, urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / 'tests/support'))
import machine as m  # noqa: E402

SERVER = ROOT / 'tests/support/tensorflow_serving.py'
VERSIONS = {'3': 'three', 'v4': 'four', 'bad': 'broken'}


class Predictions:
    """A client that sends requests without pause, over one connection as long as the connection
    lives."""

    def __init__(self, url, model):
        self.address, self.path = urllib.parse.urlsplit(url).netloc, '/v1/models/%s:predict' % model
        self.last, self.count, self.errors, self.stopping = None, 0, [], threading.Event()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        connection = http.client.HTTPConnection(self.address, timeout=m.seconds(60))
        while not self.stopping.is_set():
            try:
                connection.request('POST', self.path, body='{"instances": [1]}')
                response = connection.getresponse()
                body = json.loads(response.read())
                if response.status != 200:
                    self.errors.append(body)
                self.last = body.get('predictions')
            except (OSError, http.client.HTTPException, ValueError) as e:
                self.errors.append(repr(e))
                connection.close()
            self.count += 1
            self.stopping.wait(0.01)
        connection.close()

    def stop(self):
        self.stopping.set()
        self.thread.join(60)


class ForeignServer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        (cls.work / 'www').mkdir()
        cls.files = m.FileServer(cls.work / 'www')
        cls.varda = m.Machine(cls.work / 'data', nodes=['cloud=cloud', 'edge0=edge'])
        cls.varda.up('--image', 'serving=%s %s' % (m.PYTHON, SERVER))
        cls.varda.nodes_ready()
        cls.entries = []
        for version, content in VERSIONS.items():
            source, out = cls.work / version, cls.work / 'www' / (version + '.tar.gz')
            source.mkdir()
            (source / 'saved_model.pb').write_text(content)
            printed = cls.varda.varda('pack', source, '--framework', 'tensorflow', '-o', out)
            cls.entries.append((version, cls.files.url(out.name), printed.split('sha256sum: ')[1].split('}')[0].strip()))

    @classmethod
    def tearDownClass(cls):
        cls.varda.close()
        cls.files.stop()
        shutil.rmtree(cls.work, ignore_errors=True)

    def tearDown(self):
        self.varda.kubectl('delete', 'inferencemodels', '--all', check=False)
        m.wait_until('pods of the test gone', lambda: not self.varda.pods(), 180)

    def apply(self, name, layer, target, **more):
        model = m.inference_model(name, layer, self.entries, target, frameworkType='tensorflow', **more)
        self.varda.kubectl('apply', '-f', '-', input=json.dumps(model))

    def target(self, name, version):
        self.varda.kubectl('patch', 'inferencemodel', name, '--type=merge', '-p', json.dumps({'spec': {'targetVersion': version}}))

    def test_edge_versions_switch_without_a_failed_request(self):
        self.apply('faces', 'edge', '3', node='edge0')
        client = Predictions(self.varda.ready('faces', '3')['status']['url'], 'faces')
        try:
            self.target('faces', 'v4')
            self.varda.ready('faces', 'v4')
            m.wait_until('v4 answers', lambda: client.last == ['four'])
            pod = self.varda.get('pod', 'faces')['metadata']['uid']

            self.target('faces', '3')  # the number of version 3 is smaller
            self.varda.ready('faces', '3')
            m.wait_until('3 answers', lambda: client.last == ['three'])

            self.target('faces', 'bad')
            condition = m.wait_until('the failure', lambda: [c for c in [self.varda.condition('faces', 'TargetVersionReady')]
                                                        if c['status'] == 'False' and c['reason'] == 'LoadFailed'])[0]
            self.assertIn('meta graph', condition['message'])
            self.assertEqual(self.varda.condition('faces', 'Ready')['status'], 'True')
            self.assertEqual(self.varda.model('faces')['status']['servingVersion'], '3')

            self.target('faces', 'v4')
            self.varda.ready('faces', 'v4')
            m.wait_until('v4 answers again', lambda: client.last == ['four'])
            self.assertEqual(self.varda.get('pod', 'faces')['metadata']['uid'], pod)
        finally:
            client.stop()
        self.assertEqual(client.errors, [])
        self.assertGreater(client.count, 10)

    def test_new_archive_of_the_served_version_is_loaded(self):
        self.apply('other', 'edge', '3', node='edge0')
        client = Predictions(self.varda.ready('other', '3')['status']['url'], 'other')
        try:
            entry = {'version': '3', 'downloadURL': self.entries[1][1], 'sha256sum': self.entries[1][2]}
            self.varda.kubectl('patch', 'inferencemodel', 'other', '--type=merge', '-p', json.dumps({'spec': {'manifest': [entry]}}))
            m.wait_until('the other archive answers', lambda: client.last == ['four'])
            self.varda.ready('other', '3')
        finally:
            client.stop()
        self.assertEqual(client.errors, [])

    def test_cloud_and_host_port_models_serve(self):
        self.apply('cloudy', 'cloud', 'v4', service={'type': 'ClusterIP'})
        self.apply('ported', 'edge', 'v4', node='edge0', port=8090, edgeNetwork='hostport')
        for name in ('cloudy', 'ported'):
            client = Predictions(self.varda.ready(name, 'v4')['status']['url'], name)
            try:
                m.wait_until(name + ' answers', lambda: client.last == ['four'])
            finally:
                client.stop()


if __name__ == '__main__':
    unittest.main()
