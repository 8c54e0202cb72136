"""The model server as a process: its command line, following a repository under load, shutdown."""
import json, pathlib, shutil, signal, ssl, struct, subprocess, sys, tempfile, unittest, urllib.error, urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402


class Server:
    """A varda-serve on free ports with its own directory, which holds version 3 of the digits of
    examples/."""

    def __init__(self, *flags, url='http', ca=None):
        self.headers = {}
        self.opener = m.DIRECT
        if ca is not None:
            self.trust(ca)
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-serve-'))
        self.model = self.work / 'models/digits'
        shutil.copytree(m.DIGITS / 'models', self.model)
        self.target('3')
        self.process, models, admin = m.start_serve(self.work / 'log', '--model-repository', self.model.parent, '--http', '127.0.0.1:0',
                                                    '--admin', '127.0.0.1:0', *flags)
        self.url, self.admin = url + '://' + models, 'http://' + admin
        m.wait_until('varda-serve is ready', lambda: self.status(self.url + '/v2/health/ready') == 200)

    def trust(self, ca, certificate=None):
        context = ssl.create_default_context(cafile=ca)
        if certificate is not None:
            context.load_cert_chain(*certificate)
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))

    def text(self):
        return (self.work / 'log').read_text()

    def target(self, version):
        scratch = self.model / '.target'
        scratch.write_text(version + '\n')
        scratch.rename(self.model / 'target')

    def get(self, url, body=None):
        try:
            with self.opener.open(urllib.request.Request(url, data=body, headers=self.headers), timeout=m.seconds(60)) as r:
                return r.status, r.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def status(self, url):
        return self.get(url)[0]

    def index(self):
        return json.loads(self.get(self.url + '/v2/repository/index', b'{}')[1])

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        shutil.rmtree(self.work, ignore_errors=True)


def images():
    shape, pixels = m.read_idx(m.DIGITS / 'test-images.idx3-ubyte')
    size = shape[1] * shape[2]
    return [pixels[i * size:(i + 1) * size] for i in range(50)]


class ModelServer(unittest.TestCase):
    def serve(self, *flags, **options):
        server = Server(*flags, **options)
        self.addCleanup(server.close)
        return server

    def test_versions_switch_under_load_without_a_failed_request(self):
        server = self.serve()
        load = m.Load(server.url, 'digits', images(), clients=4)
        load.answered('3')
        for version in ('4', '3', '4'):
            server.target(version)
            m.wait_until('version %s serves' % version, lambda: [e['version'] for e in server.index() if e['state'] == 'READY'] == [version])
            load.answered(version)
        samples = load.stop()
        self.assertEqual(m.failures(samples), [])
        self.assertEqual({s[3] for s in samples}, {'3', '4'})

    def test_pages_of_other_origins_are_refused(self):
        server = self.serve('--cors-origin', 'https://app.example')
        for url in (server.url + '/v2/models/digits', server.admin + '/metrics'):
            for name, value, status in (('Origin', 'http://evil.example', 403), ('Host', 'evil.example', 403), ('Sec-Fetch-Site', 'cross-site', 403),
                                        ('Origin', url[:url.index('/', 8)], 200), ('Origin', 'https://app.example', 200)):
                request = urllib.request.Request(url, headers={name: value})
                try:
                    with m.DIRECT.open(request, timeout=m.seconds(60)) as answer:
                        seen, allowed = answer.status, answer.headers['Access-Control-Allow-Origin']
                except urllib.error.HTTPError as e:
                    seen, allowed = e.code, None
                    self.assertIn('error', json.load(e))
                self.assertEqual(seen, status, (url, name, value))
                self.assertEqual(allowed, value if value == 'https://app.example' else None)

    def test_invalid_model_keeps_the_old_version_serving(self):
        server = self.serve()
        (server.model / '5').mkdir()
        (server.model / '5/model.onnx').write_text('<html>not found</html>')
        server.target('5')
        failed = m.wait_until('the failure is reported', lambda: [e for e in server.index() if e['state'] == 'UNAVAILABLE'])
        self.assertEqual(failed[0]['version'], '5')
        self.assertTrue(failed[0]['reason'])
        self.assertEqual(json.loads(server.get(server.url + '/v2/models/digits')[1])['versions'], ['3'])
        server.target('3')
        m.wait_until('the failure is cleared', lambda: [(e['version'], e['state']) for e in server.index()] == [('3', 'READY')])

    def test_sigterm_drains_answers_and_exits_with_0(self):
        # longer than the next steps take on a busy machine
        server = self.serve('--drain-delay', '15')
        load = m.Load(server.url, 'digits', images())
        server.process.send_signal(signal.SIGTERM)
        m.wait_until('not ready', lambda: server.status(server.admin + '/readyz') == 503)
        self.assertEqual(server.status(server.url + '/v2/models/digits/ready'), 503)
        self.assertEqual(server.status(server.url + '/v2/health/live'), 200)
        samples = load.stop()
        self.assertEqual(m.failures(samples), [])
        self.assertEqual(server.process.wait(timeout=m.seconds(120)), 0)

    def load_echo(self, server, words):
        """Serves a version of the test engine that reads or writes a file during its load; returns
        the index entry."""
        (server.model / '5').mkdir(exist_ok=True)
        (server.model / '5/model.onnx').write_text('tensor FP32 -1 1\n' + words + '\n')
        (server.model / '5/model.yaml').write_text('engine: echo\n')
        server.target('5')
        return m.wait_until('version 5 is loaded or refused', lambda: [
            e for e in server.index() if e['version'] == '5' and e['state'] in ('READY', 'UNAVAILABLE')])[0]

    def test_engine_opens_no_file_outside_the_repository(self):
        outside = pathlib.Path(tempfile.mkdtemp(prefix='varda-outside-'))
        self.addCleanup(shutil.rmtree, outside, ignore_errors=True)
        (outside / 'secret').write_text('secret')
        engines = ('--engine-path', m.BIN.parent / 'lib/varda-testing')
        for words in ('read %s' % (outside / 'secret'), 'read /etc/passwd', 'write %s' % (outside / 'secret'),
                      'write /proc/self/oom_score_adj'):
            # A child process tries the load, or the server itself loads with --try-loads=false.
            # Both are confined.
            for flags in ((), ('--try-loads=false',)):
                server = self.serve(*engines, *flags)
                if 'confined_files' not in json.loads(server.get(server.url + '/v2')[1])['extensions']:
                    self.assertIn('not confined', server.text())
                    self.skipTest('this kernel has no Landlock')
                entry = self.load_echo(server, words)
                self.assertEqual((entry['state'], 'cannot ' + words), ('UNAVAILABLE', entry['reason'].split(': ')[-1].strip()))
                server.close()
        allowed = self.serve(*engines, '--also-read', outside)
        self.assertEqual(self.load_echo(allowed, 'read %s' % (outside / 'secret'))['state'], 'READY')
        open_ = self.serve(*engines, '--confine=false')
        self.assertNotIn('confined_files', json.loads(open_.get(open_.url + '/v2')[1])['extensions'])
        self.assertEqual(self.load_echo(open_, 'read %s' % (outside / 'secret'))['state'], 'READY')

    def test_inference_port_requires_token_and_tls(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix='varda-tls-'))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        m.self_signed(folder)
        (folder / 'tokens').write_text('let-me-in\n')
        server = self.serve('--tls-cert', folder / 'tls.crt', '--tls-key', folder / 'tls.key', '--token-file', folder / 'tokens',
                            url='https', ca=folder / 'tls.crt')
        self.assertEqual(server.status(server.url + '/v2/health/ready'), 200)
        self.assertEqual(server.status(server.url + '/v2'), 401)
        server.headers = {'Authorization': 'Bearer let-me-in'}
        self.assertEqual(server.status(server.url + '/v2'), 200)
        (folder / 'tokens').write_text('another\n')
        m.wait_until('the old token is refused', lambda: server.status(server.url + '/v2') == 401)
        with self.assertRaises(OSError):
            urllib.request.build_opener(urllib.request.ProxyHandler({})).open(server.url.replace('https', 'http') + '/v2', timeout=m.seconds(60))

    def test_any_certificate_of_the_client_authority_is_accepted(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix='varda-tls-'))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        m.self_signed(folder)

        def openssl(*words):
            subprocess.run(['openssl', *map(str, words)], cwd=folder, check=True, capture_output=True, timeout=m.seconds(60))
        openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-subj', '/CN=cameras',
                '-keyout', 'ca.key', '-out', 'ca.crt')
        openssl('req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-subj', '/O=no common name',
                '-keyout', 'client.key', '-out', 'client.csr')
        openssl('x509', '-req', '-in', 'client.csr', '-CA', 'ca.crt', '-CAkey', 'ca.key', '-CAcreateserial', '-out', 'client.crt')
        server = self.serve('--tls-cert', folder / 'tls.crt', '--tls-key', folder / 'tls.key', '--client-ca', folder / 'ca.crt',
                            url='https', ca=folder / 'tls.crt')
        self.assertEqual(server.status(server.url + '/v2'), 401)
        server.trust(folder / 'tls.crt', (folder / 'client.crt', folder / 'client.key'))
        self.assertEqual(server.status(server.url + '/v2'), 200)
        images = ['--images', m.DIGITS / 'png/digit-0.png']
        self.assertEqual(self.predict(server, *images, '--ca-file', folder / 'tls.crt')[0], 1)
        code, out, err = self.predict(server, *images, '--ca-file', folder / 'tls.crt', '--cert', folder / 'client.crt',
                                      '--key', folder / 'client.key')
        self.assertEqual(code, 0, err)
        self.assertIn('1 images', out)

    def test_renamed_credential_files_take_effect(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix='varda-tls-'))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)

        def replace(token):
            (folder / 'next').mkdir()
            m.self_signed(folder / 'next')
            (folder / 'next/tokens').write_text(token + '\n')
            for file in ('tls.crt', 'tls.key', 'tokens'):
                (folder / 'next' / file).rename(folder / file)
            shutil.rmtree(folder / 'next')
            return (folder / 'tls.crt').read_text().strip()
        replace('first')
        server = self.serve('--tls-cert', folder / 'tls.crt', '--tls-key', folder / 'tls.key', '--token-file', folder / 'tokens',
                            '--engine-path', m.BIN.parent / 'lib/varda-testing', url='https', ca=folder / 'tls.crt')
        host, port = server.url.split('//')[1].split(':')
        server.headers = {'Authorization': 'Bearer first'}
        self.assertIn('confined_files', json.loads(server.get(server.url + '/v2')[1])['extensions'])
        second = replace('second')
        m.wait_until('the second certificate', lambda: ssl.get_server_certificate((host, int(port))).strip() == second)
        server.trust(folder / 'tls.crt')
        m.wait_until('the first token is refused', lambda: server.status(server.url + '/v2') == 401)
        server.headers = {'Authorization': 'Bearer second'}
        self.assertEqual(server.status(server.url + '/v2'), 200)
        # A model cannot read them.
        entry = self.load_echo(server, 'read %s' % (folder / 'tls.key'))
        self.assertEqual(entry['state'], 'UNAVAILABLE', entry)

    def test_changed_certificate_takes_effect_without_a_restart(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix='varda-tls-'))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)

        def turn(name):
            """As a kubelet does with a Secret: what the files lead to changes in one step."""
            (folder / name).mkdir()
            m.self_signed(folder / name)
            (folder / '..next').symlink_to(name)
            (folder / '..next').rename(folder / '..data')
            return (folder / name / 'tls.crt').read_text()
        turn('first')
        for file in ('tls.crt', 'tls.key'):
            (folder / file).symlink_to('..data/' + file)
        server = self.serve('--tls-cert', folder / 'tls.crt', '--tls-key', folder / 'tls.key', url='https', ca=folder / 'tls.crt')
        self.assertIn('confined_files', json.loads(server.get(server.url + '/v2')[1])['extensions'])
        second = turn('second')
        host, port = server.url.split('//')[1].split(':')
        m.wait_until('the second certificate', lambda: ssl.get_server_certificate((host, int(port))).strip() == second.strip())

    def test_metrics_count_requests(self):
        server = self.serve()
        client = m.Client(server.url, 'digits', images())
        client.prepare()
        for _ in range(3):
            self.assertTrue(client.one(), client.samples)
        text = server.get(server.admin + '/metrics')[1]
        self.assertIn('nv_inference_request_success{model="digits",version="3"} 3\n', text)

    def test_wrong_flags_exit_with_2_and_a_missing_directory_with_1(self):
        def run(*flags):
            done = subprocess.run([m.SERVE, *flags], capture_output=True, text=True, timeout=m.seconds(120))
            return done.returncode, done.stderr
        self.assertEqual(run()[0], 2)
        self.assertIn('--model-repository', run()[1])
        self.assertEqual(run('--model-repository', '/tmp', '--grpc', '127.0.0.1:0')[0], 2)
        code, words = run('--model-repository', '/nowhere')
        self.assertEqual(code, 1)
        self.assertIn('/nowhere', words)
        self.assertEqual(run('--version')[0], 0)

    def predict(self, server, *words):
        done = subprocess.run([m.VARDA, 'predict', 'digits', '--url', server.url, *map(str, words)], capture_output=True, text=True,
                              timeout=m.seconds(120))
        return done.returncode, done.stdout, done.stderr

    def test_predict_names_a_damaged_image_and_continues(self):
        server = self.serve()
        torn = server.work / 'torn.png'
        good = [m.DIGITS / 'png/digit-0.png', m.DIGITS / 'png/digit-7.png']
        torn.write_bytes(good[0].read_bytes()[:60])
        code, out, err = self.predict(server, '--images', good[0], torn, good[1])
        self.assertEqual(code, 1, err)
        self.assertEqual([line.split()[0] for line in out.splitlines()[1:3]], [str(file) for file in good])
        self.assertIn('2 images, version 3', out)
        # the message appears at the image, and again at the end
        self.assertEqual(err.count(str(torn)), 2, err)
        self.assertIn('1 image has no answer', err)
        code, out, err = self.predict(server, '--images', torn)
        self.assertEqual((code, out), (1, ''))

    def test_predict_sends_tensors_from_json_and_numpy_files(self):
        server = self.serve()
        pixels = images()[0]
        size = len(pixels)
        metadata = json.loads(server.get(server.url + '/v2/models/digits')[1])
        shape = [1] + metadata['inputs'][0]['shape'][1:]
        name = metadata['inputs'][0]['name']
        request = server.work / 'request.json'
        request.write_text(json.dumps({'inputs': [{'name': name, 'shape': shape, 'datatype': 'FP32', 'data': list(pixels)}]}))
        header = ("{'descr': '<f4', 'fortran_order': False, 'shape': %r, }\n" % (tuple(shape),)).encode()
        array = server.work / 'array.npy'
        array.write_bytes(b'\x93NUMPY\x01\x00' + struct.pack('<H', len(header)) + header + struct.pack('<%df' % size, *pixels))
        answers = []
        for words in (['--json', request], ['--input', '%s=%s' % (name, array)]):
            code, out, err = self.predict(server, *words, '-o', 'json')
            self.assertEqual(code, 0, err)
            answers.append(json.loads(out)['outputs'])
            code, text, err = self.predict(server, *words)
            self.assertIn(answers[-1][0]['name'] + '   ', text)
            self.assertIn('version 3 of digits', text)
        self.assertEqual(answers[0], answers[1])
        self.assertEqual(answers[0][0]['datatype'], 'FP32')
        whole = json.loads(server.get(server.url + '/v2/models/digits/infer', request.read_bytes())[1])
        self.assertEqual(answers[0][0]['data'], whole['outputs'][0]['data'])
        for words, named in ((['--json', array], str(array)), (['--input', 'x=' + str(request)], str(request)), (['--input', 'nothing'], 'NAME=FILE'),
                             ([], '--images'), (['--json', request, '--images', 'a.png'], '--images')):
            code, out, err = self.predict(server, *words)
            self.assertEqual((code, out), (1, ''), words)
            self.assertIn(named, err)

    def test_flags_are_read_from_a_file(self):
        with tempfile.NamedTemporaryFile('w', suffix='.conf') as f:
            f.write('log-format=json\ndrain-delay=0\n')
            f.flush()
            server = self.serve('--config', f.name)
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.process.wait(timeout=m.seconds(120)), 0)
        self.assertEqual(json.loads(server.text().splitlines()[-1])['message'], 'varda-serve ends')


if __name__ == '__main__':
    unittest.main()
