"""The directory that `make images` packs: its programs run in it alone, and a model server loads a
model and answers there."""
import hashlib, json, os, pathlib, re, shutil, subprocess, sys, tempfile, unittest, urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402

# A user namespace lets any user change root. Inside, only the image's tree is visible.
ENTER = ['/usr/bin/unshare', '--user', '--map-root-user', '--root']


def can_enter():
    return subprocess.run(ENTER + ['/', '/usr/bin/true'], capture_output=True).returncode == 0


def seen(root):
    """{path: the properties that count in an archive}"""
    def content(path):
        return os.readlink(path) if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ''
    return {str(path.relative_to(root)): (path.lstat().st_mode, path.lstat().st_mtime, content(path)) for path in root.rglob('*')}


NAMES = ('varda', 'varda-serve', 'varda-train', 'varda-aggregate')


class Images(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        cls.addClassCleanup(shutil.rmtree, cls.work, True)
        for name in NAMES:
            cls.make(name, cls.work / name)

    @classmethod
    def make(cls, name, to):
        environment = dict(os.environ, VARDA_BIN=str(m.BIN), SOURCE_DATE_EPOCH='1700000000')
        done = subprocess.run(['bash', str(m.ROOT / 'scripts/images.sh'), 'root', name, str(to)], capture_output=True, text=True, env=environment)
        if done.returncode != 0:
            raise m.Failed(done.stderr)

    def enter(self, name, *command):
        if not can_enter():
            self.skipTest('this user may not make namespaces here')
        return ENTER + [str(self.work / name), *command]

    def files(self, name):
        root = self.work / name
        return {str(path.relative_to(root)): path for path in root.rglob('*')}

    def test_programs_run_with_only_their_image(self):
        for name in NAMES:
            done = subprocess.run(self.enter(name, '/usr/bin/' + name, '--version'), capture_output=True, text=True, env={})
            self.assertRegex(done.stdout, r'^%s \d+\.\d+\.\d+\n$' % name, done.stderr)

    def serve(self, name, versions):
        """Starts the image's server with copies of the directories `versions`; returns its URL."""
        command = self.enter('varda-serve', '/usr/bin/varda-serve', '--model-repository', '/models', '--http', '127.0.0.1:0')
        models = self.work / 'varda-serve/models' / name
        models.mkdir(parents=True)
        for version in versions:
            shutil.copytree(version, models / version.name)
        self.addCleanup(shutil.rmtree, models.parent)
        log = open(self.work / 'serve.log', 'w+')
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={})
        self.addCleanup(log.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)

        def port():
            if server.poll() is not None:
                # waiting longer is useless
                raise RuntimeError((self.work / 'serve.log').read_text())
            found = re.search(r'127\.0\.0\.1:([1-9]\d*)', (self.work / 'serve.log').read_text())
            return found and found.group(1)
        url = 'http://127.0.0.1:' + m.wait_until('the server', port)
        described = m.wait_until('the model', lambda: json.load(m.DIRECT.open(url + '/v2/models/' + name, timeout=m.seconds(60))))
        self.assertEqual(described['name'], name)
        return url

    def test_model_server_loads_a_model_and_answers(self):
        url = self.serve('digits', [m.DIGITS / 'models' / version for version in ('3', '4')])
        client = m.Client(url, 'digits', [bytes(64)])
        client.prepare()
        self.assertTrue(client.one(), client.samples)
        client.close()

    @unittest.skipUnless(m.engine_built('opencv'), 'the build has no OpenCV engine (libopencv-dnn-dev)')
    def test_model_server_loads_a_frozen_graph_and_answers(self):
        graph = m.ROOT / 'plugins/opencv/testdata/faces/4'
        url = self.serve('faces', [graph])
        given, expected = ([float(word) for word in line.split()] for line in (graph / 'example.txt').read_text().splitlines())
        body = {'inputs': [{'name': 'input', 'datatype': 'FP32', 'shape': [1, 12, 12, 1], 'data': given}]}
        request = urllib.request.Request(url + '/v2/models/faces/infer', json.dumps(body).encode(), {'Content-Type': 'application/json'})
        with m.DIRECT.open(request, timeout=m.seconds(60)) as reply:
            found = json.load(reply)['outputs'][0]['data']
        self.assertEqual(len(found), len(expected))
        for left, right in zip(found, expected):
            self.assertAlmostEqual(left, right, places=5)

    def test_names_are_resolved_from_the_hosts_file(self):
        """The C library resolves names from /etc/hosts, without other files. A 404 comes from a
        server that was found."""
        hosts = self.work / 'varda/etc/hosts'
        hosts.write_text('127.0.0.1 files.example\n')
        self.addCleanup(hosts.unlink)
        (self.work / 'empty').mkdir()
        files = m.FileServer(self.work / 'empty')
        self.addCleanup(files.stop)
        done = subprocess.run(self.enter('varda', '/usr/bin/varda', 'fetch', *m.LOOPBACK, '--url', 'http://files.example:%d/x.tar.gz' % files.port, '--sha256', '0' * 64,
                                         '--to', '/tmp/x', '--framework', 'onnx'), capture_output=True, text=True, env={})
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn('404', done.stderr)

    def test_public_authorities_are_where_openssl_looks(self):
        for name in NAMES:
            root = self.work / name
            self.assertEqual(os.readlink(root / 'usr/lib/ssl/cert.pem'), '/etc/ssl/certs/ca-certificates.crt')
            self.assertIn('BEGIN CERTIFICATE', (root / 'etc/ssl/certs/ca-certificates.crt').read_text())

    def test_images_have_no_shell_and_a_licence_for_every_library(self):
        for name in NAMES:
            files = self.files(name)
            self.assertEqual([p for p in files if p.startswith('usr/bin/')], ['usr/bin/' + name])
            self.assertEqual([p for p, path in files.items() if path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o6000], [])
            # A stripped program has no section of symbols for debuggers.
            headers = subprocess.run(['readelf', '-S', '--wide', str(self.work / name / 'usr/bin' / name)], capture_output=True, text=True, check=True).stdout
            self.assertNotIn('.symtab', headers)
            self.assertNotIn('.debug_info', headers)
            for path in files:
                if re.fullmatch(r'usr/lib/[^/]+-linux-gnu/lib(ssl|crypto)\.so\.3', path):
                    self.assertIn('usr/share/doc/libssl3/copyright', files)
            further = {'varda': ('libarchive13', 'libsqlite3-0'), 'varda-aggregate': ()}.get(name, ('onnxruntime',))
            for needed in ('varda', 'libc6', 'libssl3', 'libstdc++6', 'ca-certificates') + further:
                self.assertIn('usr/share/doc/%s/copyright' % needed, files)

    def test_equal_sources_give_equal_trees(self):
        for name in ('one', 'another'):
            self.make('varda-serve', self.work / name)
            self.addCleanup(shutil.rmtree, self.work / name)
        one, another = (seen(self.work / name) for name in ('one', 'another'))
        self.assertEqual({path for path in one if one[path] != another.get(path)}, set())
        self.assertEqual(set(one), set(another))


if __name__ == '__main__':
    unittest.main()
