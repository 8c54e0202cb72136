"""The status of an InferenceModel after changes and failures, with real processes and a real
kubectl."""
import fcntl, hashlib, http.client, json, os, pathlib, pty, re, shutil, signal, struct, subprocess, sys, tempfile, termios, threading, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402


class Terminal:
    """A program on a terminal of 200 columns, and all its output."""

    def __init__(self, command, env):
        self.controller, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack('4H', 40, 200, 0, 0))
        self.screen = ''
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal, env=env)
        os.close(terminal)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        try:
            while data := os.read(self.controller, 1 << 16):
                self.screen += data.decode(errors='replace')
        except OSError:
            pass  # EIO: no process writes to the terminal any more

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join()
        os.close(self.controller)


class ModelLife(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        (cls.work / 'www').mkdir()
        cls.files = m.FileServer(cls.work / 'www')
        cls.varda = m.Machine(cls.work / 'data', nodes=['cloud=cloud', 'edge0=edge', 'edge1=edge'])
        cls.varda.up()
        cls.varda.nodes_ready()
        cls.entries = []
        for v in ('3', '4'):
            out = cls.work / 'www' / ('digits-%s.tar.gz' % v)
            cls.entries.append((v, cls.files.url(out.name), m.pack(cls.varda, v, out)))
        shape, pixels = m.read_idx(m.DIGITS / 'test-images.idx3-ubyte')
        cls.image = pixels[:shape[1] * shape[2]]

    @classmethod
    def tearDownClass(cls):
        cls.varda.close()
        cls.files.stop()
        shutil.rmtree(cls.work, ignore_errors=True)

    def tearDown(self):
        self.varda.kubectl('delete', 'inferencemodels', '--all', check=False)
        m.wait_until('pods of the test gone', lambda: not self.varda.pods(), 180)

    def apply(self, *args, **kw):
        self.varda.kubectl('apply', '-f', '-', input=json.dumps(m.inference_model(*args, **kw)))

    def patch(self, name, **spec):
        self.varda.kubectl('patch', 'inferencemodel', name, '--type=merge', '-p', json.dumps({'spec': spec}))

    @staticmethod
    def manifest(*entries):
        return [{'version': v, 'downloadURL': u, 'sha256sum': s} for v, u, s in entries]

    def condition(self, name, kind, **fields):
        """Waits for a condition of the current spec with these fields."""
        def probe():
            model = self.varda.model(name)
            return [c for c in model.get('status', {}).get('conditions', []) if c['type'] == kind
                    and c.get('observedGeneration') == model['metadata']['generation'] and all(c.get(k) == v for k, v in fields.items())]
        return m.wait_until('%s of %s with %s' % (kind, name, fields), probe)[0]

    def scores(self, name):
        """The model's output for one image. The output shows which archive answers, whatever the
        name of the version."""
        client = m.Client(self.varda.model(name)['status']['url'], name, [self.image])
        client.prepare()
        connection = http.client.HTTPConnection(client.address, timeout=m.seconds(60))
        connection.request('POST', '/v2/models/%s/infer' % name, body=client.bodies[0])
        answer = json.loads(connection.getresponse().read())
        connection.close()
        return [round(x, 3) for x in answer['outputs'][-1]['data']]

    def agents(self, node):
        return [p for p, c in self.varda.processes().items() if ' agent ' in c and '--node %s ' % node in c]

    def test_each_cause_of_a_missing_node_has_its_reason(self):
        self.apply('a1', 'edge', self.entries, '3', nodeSelector={'no': 'where'})
        self.apply('a2', 'edge', self.entries, '3', nodeSelector={'node-role.kubernetes.io/edge': ''})
        self.apply('a3', 'edge', self.entries, '3', node='edge9')
        self.apply('a4', 'edge', self.entries, '3', node='edge0', nodeSelector={'kubernetes.io/hostname': 'edge1'})
        self.condition('a1', 'Ready', status='False', reason='NoNodeMatches')
        self.assertIn('edge0, edge1', self.condition('a2', 'Ready', status='False', reason='SeveralNodesMatch')['message'])
        self.condition('a3', 'Ready', status='False', reason='NodeNotFound')
        self.condition('a4', 'Ready', status='False', reason='NodeNameSelectorMismatch')
        self.varda.kubectl('label', 'node', 'edge1', 'no=where')
        self.assertEqual(self.varda.ready('a1', '3')['status']['node'], 'edge1')
        self.varda.kubectl('label', 'node', 'edge1', 'no-')

    def test_new_archive_of_the_served_version_is_loaded(self):
        self.apply('b', 'edge', self.entries, '3', node='edge0')
        self.varda.ready('b', '3')
        self.apply('b4', 'edge', self.entries, '4', node='edge1')
        self.varda.ready('b4', '4')
        three, four = self.scores('b'), self.scores('b4')
        self.assertNotEqual(three, four)
        self.patch('b', manifest=self.manifest(('3', self.entries[1][1], self.entries[1][2])))
        self.condition('b', 'TargetVersionReady', status='True')
        m.wait_until('the other archive answers', lambda: self.scores('b') == four)
        self.patch('b', manifest=self.manifest(('3', self.entries[1][1], 'e' * 64)))
        condition = self.condition('b', 'TargetVersionReady', status='False', reason='DigestMismatch')
        self.assertIn('e' * 64, condition['message'])
        self.assertIn(self.entries[1][2], condition['message'])
        self.condition('b', 'Ready', status='True')
        self.assertEqual(self.scores('b'), four)

    def test_version_removed_from_the_manifest_serves_until_replaced(self):
        self.apply('c', 'edge', self.entries, '3', node='edge0')
        self.varda.ready('c', '3')
        self.patch('c', manifest=self.manifest(('5', self.entries[1][1], 'd' * 64)), targetVersion='5')
        self.condition('c', 'TargetVersionReady', status='False', reason='DigestMismatch')
        self.assertEqual(self.varda.model('c')['status']['servingVersion'], '3')
        self.scores('c')
        self.patch('c', manifest=self.manifest(('5', self.entries[1][1], self.entries[1][2])))
        self.varda.ready('c', '5')

    def test_changes_of_port_framework_image_and_name_take_effect(self):
        self.apply('d', 'edge', self.entries, '3', node='edge0', port=8090)
        self.varda.ready('d', '3')
        self.patch('d', servingPort=8091)
        self.assertTrue(self.varda.ready('d', '3')['status']['url'].endswith(':8091'))
        self.scores('d')
        self.patch('d', frameworkType='paddle')
        self.condition('d', 'Ready', status='False', reason='FrameworkUnsupported')
        self.patch('d', frameworkType='onnx', image='nobody/has-this:1')
        self.assertIn('nobody/has-this:1', self.condition('d', 'Ready', status='False', reason='ImageUnsupported')['message'])
        self.assertNotIn('url', self.varda.model('d')['status'])
        self.patch('d', image='')
        self.varda.ready('d', '3')
        self.patch('d', modelName='renamed')

        def answers_as_renamed():
            return m.Client(self.varda.ready('d', '3')['status']['url'], 'renamed', []).metadata()
        m.wait_until('the other name', answers_as_renamed)

    def test_hanging_node_is_unreachable_and_keeps_its_last_report(self):
        self.apply('e', 'edge', self.entries, '3', node='edge0')
        status = self.varda.ready('e', '3')['status']
        agent = self.agents('edge0')[0]
        os.kill(agent, signal.SIGSTOP)
        try:
            self.condition('e', 'Ready', status='Unknown', reason='NodeUnreachable')
            now = self.varda.model('e')['status']
            self.assertEqual((now['servingVersion'], now['url']), ('3', status['url']))
            self.scores('e')
        finally:
            os.kill(agent, signal.SIGCONT)
        self.condition('e', 'Ready', status='True')

    def test_long_download_reports_its_progress(self):
        folder, archive = self.work / 'big', self.work / 'www/big.tar.gz'
        shutil.copytree(m.DIGITS / 'models/3', folder)
        (folder / 'noise.bin').write_bytes(os.urandom(2 << 20))
        self.varda.varda('pack', folder, '--version-name', '3', '-o', archive)
        released = self.files.held['/' + archive.name] = threading.Event()
        self.addCleanup(released.set)
        entry = ('3', self.files.url(archive.name), hashlib.sha256(archive.read_bytes()).hexdigest())
        self.apply('h', 'edge', [entry], '3', node='edge0', port=8094)
        waiting = Terminal([m.VARDA, 'wait', 'inferencemodel/h', '--for=condition=Ready', '--timeout=%ds' % m.seconds(900)],
                           dict(os.environ, KUBECONFIG=self.varda.kubeconfig, HOME=str(self.varda.dir), TERM='xterm'))
        self.addCleanup(waiting.close)

        # About half of the archive arrives before the release. Buffers on the way decide the exact
        # figure.
        pattern = r'node edge0 is downloading version 3: \d+(\.\d)? [KM]iB of 2\.0 MiB from 127\.0\.0\.1:%d' % self.files.port
        m.wait_until('figures of the download', lambda: re.fullmatch(pattern, self.condition('h', 'Ready', reason='Downloading')['message']))
        for command in (self.varda.kubectl, self.varda.varda):
            self.assertRegex(command('describe', 'inferencemodel', 'h'), pattern)
            self.assertRegex(command('get', 'inferencemodels', '-o', 'wide'), pattern)
        version = self.reported('edge0', 'default/h')
        self.assertEqual((version['state'], version['bytesTotal']), ('Downloading', archive.stat().st_size))
        self.assertTrue(0 < version['bytesDone'] < version['bytesTotal'], version)
        m.wait_until('figures on the terminal', lambda: re.search(pattern, waiting.screen))
        released.set()
        self.varda.ready('h', '3')
        self.assertEqual(waiting.process.wait(m.seconds(180)), 0, waiting.screen)
        version = self.reported('edge0', 'default/h')
        self.assertEqual((version['state'], version.get('bytesDone'), version.get('bytesTotal')), ('Ready', None, None))

    def reported(self, node, key):
        """The EdgeNode's report about the first version of a model."""
        return next(model for model in self.varda.get('edgenode', node)['status']['models'] if model['key'] == key)['versions'][0]

    def test_wrong_digest_in_the_cloud_reports_both_digests(self):
        wrong = ('5', self.entries[0][1], 'c' * 64)
        self.apply('f', 'cloud', self.entries + [wrong], '3')
        self.varda.ready('f', '3')
        self.patch('f', targetVersion='5')
        condition = self.condition('f', 'TargetVersionReady', status='False', reason='DigestMismatch')
        self.assertIn('c' * 64, condition['message'])
        self.assertIn(self.entries[0][2], condition['message'])
        self.condition('f', 'Ready', status='True')
        self.patch('f', targetVersion='4')
        self.varda.ready('f', '4')

    def test_models_of_one_name_in_two_namespaces_are_independent(self):
        self.varda.kubectl('create', 'namespace', 'team')
        self.apply('g', 'edge', self.entries, '3', node='edge0', port=8092)
        other = m.inference_model('g', 'edge', self.entries, '4', node='edge0', port=8093)
        self.varda.kubectl('apply', '-n', 'team', '-f', '-', input=json.dumps(other))
        self.varda.ready('g', '3')
        self.varda.kubectl('wait', '-n', 'team', '--for=condition=Ready', 'inferencemodel/g', '--timeout=%ds' % m.seconds(180))
        self.assertEqual(self.varda.get('inferencemodel', 'g', '-n', 'team')['status']['servingVersion'], '4')
        self.varda.kubectl('delete', 'namespace', 'team')
        below = self.work / 'data/nodes/edge0/data/models'
        m.wait_until('the files of one gone', lambda: not list(below.glob('team/*')))
        self.assertEqual(self.varda.ready('g', '3')['status']['servingVersion'], '3')
        self.scores('g')


if __name__ == '__main__':
    unittest.main()
