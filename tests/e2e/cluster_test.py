"""tests/conformance/cluster.sh against `varda up`, and the helpers it uses inside of a cluster.

The script runs while the control plane is killed in every step, with the newest kubectl, and with
a stop half-way. The helpers are the file server and the load.
"""
import http.client, http.server, json, os, pathlib, re, shutil, signal, subprocess, sys, tempfile, threading, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402

SCRIPT = m.ROOT / 'tests/conformance/cluster.sh'
STEPS = ['preflight', 'files', 'edge-apply', 'edge-predict', 'edge-switch', 'edge-wrong-digest', 'edge-back', 'cloud-apply', 'cloud-balance',
         'cloud-scale', 'cloud-heal', 'cloud-cluster-ip', 'dataset', 'events', 'delete', 'clean-up']


def newest_kubectl():
    """The kubectl on this machine with the highest version in its file name."""
    found = {}
    for directory in os.environ.get('PATH', '').split(os.pathsep) + ['/usr/lib/google-cloud-sdk/bin']:
        if not directory or not os.access(directory, os.R_OK | os.X_OK):
            continue
        for path in pathlib.Path(directory).glob('kubectl.1.*'):
            if re.fullmatch(r'kubectl\.1\.\d+', path.name) and os.access(path, os.X_OK):
                found[int(path.name.rsplit('.', 1)[1])] = str(path)
    return found[max(found)] if found else None


class Cluster(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.varda = m.Machine(nodes=['cloud=cloud', 'edge0=edge'])
        cls.datasets = cls.varda.dir / 'datasets'
        cls.datasets.mkdir()
        (cls.datasets / 'measurements.csv').write_text('time,value\n' + ''.join('%d,%d\n' % (i, i * i) for i in range(321)))
        cls.varda.up('--dataset-root', cls.datasets)
        cls.varda.nodes_ready()

    @classmethod
    def tearDownClass(cls):
        cls.varda.close()
        if cls.varda.own:
            shutil.rmtree(cls.varda.dir, ignore_errors=True)

    def command(self, *more, kubectl=m.KUBECTL):
        return ['sh', str(SCRIPT), '--kubeconfig', self.varda.kubeconfig, '--kubectl', kubectl, '--image', 'registry.example:5000/edge/varda:0.1.0',
                '--load-seconds', '1', '--timeout', '%d' % m.seconds(180), '--dataset-path', str(self.datasets / 'measurements.csv'), '--dataset-samples', '321', *more]

    def outcomes(self, text):
        return {line.split()[1]: line.split()[0] for line in text.splitlines() if re.match(r'(PASS|FAIL|SKIP|OFF) ', line)}

    def nothing_is_left(self):
        self.assertEqual([n for n in self.varda.kubectl('get', 'namespaces', '-o', 'name').split() if 'conformance' in n], [])
        self.assertEqual(self.varda.get('inferencemodels', '-A')['items'], [])
        m.wait_until('pods gone', lambda: not self.varda.get('pods', '-A')['items'])

    def passes(self, command):
        done = self.varda.run(command, check=False, timeout=1500)
        output = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, output)
        self.assertEqual(self.outcomes(output), {step: 'PASS' for step in STEPS}, output)
        self.nothing_is_left()
        return output

    def test_every_step_passes_despite_a_control_plane_kill(self):
        chaos = self.varda.dir / 'chaos.sh'
        chaos.write_text('set -eu\nkill -9 "$(sed -n \'s/.*"pid": *\\([0-9]*\\).*/\\1/p\' %s/up.json)"\n'
                         'echo "$VARDA_STEP" >> %s/killed\nexec %s up --data-dir %s --dataset-root %s --detach\n' % (
                             self.varda.dir, self.varda.dir, m.VARDA, self.varda.dir, self.datasets))
        self.passes(self.command('--chaos', 'sh %s' % chaos))
        killed = set((self.varda.dir / 'killed').read_text().split())
        self.assertEqual(killed, set(STEPS) - {'preflight', 'clean-up'})

    @unittest.skipUnless(os.environ.get('VARDA_SOAK'), 'a minute more: in `make nightly`')
    def test_every_step_passes_with_the_newest_kubectl(self):
        kubectl = newest_kubectl()
        if not kubectl:
            self.skipTest('there is no kubectl.1.* here')
        self.passes(self.command(kubectl=kubectl))

    def test_interrupted_run_leaves_no_objects(self):
        run = subprocess.Popen(self.command('--skip', 'cloud', kubectl=newest_kubectl() or m.KUBECTL), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        m.wait_until('a model', lambda: self.varda.get('inferencemodels', '-A')['items'])
        run.send_signal(signal.SIGINT)
        output, _ = run.communicate(timeout=m.seconds(600))
        self.assertEqual(run.returncode, 130, output)
        self.nothing_is_left()

    def test_failed_step_is_reported_and_cleaned_up(self):
        done = self.varda.run(self.command('--skip', 'edge', '--skip', 'cloud', '--dataset-samples', '322'), check=False, timeout=600)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        outcomes = self.outcomes(done.stdout)
        self.assertEqual([s for s in outcomes if outcomes[s] == 'FAIL'], ['dataset'], done.stdout)
        self.assertIn('321 samples were counted, not 322', done.stdout)
        self.nothing_is_left()
        done = self.varda.run(self.command('--node', 'nowhere'), check=False, timeout=600)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn('there is no node nowhere', done.stdout)
        self.assertEqual(self.outcomes(done.stdout)['edge-apply'], 'FAIL')
        self.nothing_is_left()


class FileServer(unittest.TestCase):
    """`varda artifacts serve`."""

    def test_server_serves_a_directory_until_sigterm(self):
        with tempfile.TemporaryDirectory() as directory:
            (pathlib.Path(directory) / 'a.tar.gz').write_bytes(bytes(range(256)) * 4096)
            (pathlib.Path(directory) / 'out').symlink_to('/etc/hostname')
            server = subprocess.Popen([m.VARDA, 'artifacts', 'serve', directory, '--listen', '127.0.0.1:0'], stdout=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL, text=True)
            try:
                address = re.search(r'http://([^/]+)/', server.stdout.readline()).group(1)
                connection = http.client.HTTPConnection(address, timeout=m.seconds(60))
                answers = {}
                for path, headers in (('/a.tar.gz', {}), ('/a.tar.gz', {'Range': 'bytes=1048570-'}), ('/out', {}), ('/', {})):
                    connection.request('GET', path, headers=headers)
                    answer = connection.getresponse()
                    answers[path, len(headers)] = (answer.status, len(answer.read()))
                self.assertEqual(answers, {('/a.tar.gz', 0): (200, 1 << 20), ('/a.tar.gz', 1): (206, 6), ('/out', 0): (404, answers['/out', 0][1]),
                                           ('/', 0): (404, answers['/', 0][1])})
                connection.close()
                server.send_signal(signal.SIGTERM)
                self.assertEqual(server.wait(60), 0)
            finally:
                server.kill()
                server.wait()
                server.stdout.close()

    def test_error_names_a_path_that_is_not_a_directory(self):
        for wrong in ('/nowhere/at/all', m.VARDA):
            done = subprocess.run([m.VARDA, 'artifacts', 'serve', wrong], capture_output=True, text=True, timeout=m.seconds(60))
            self.assertEqual(done.returncode, 1)
            self.assertIn(wrong, done.stderr)


class Load(unittest.TestCase):
    """`varda predict --duration`."""

    def test_load_report_counts_failures_by_message(self):
        class Refuses(http.server.BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'
            answered = 0

            def log_message(self, *args):
                pass

            def answer(self, status, text, kind='application/json'):
                self.send_response(status)
                self.send_header('Content-Type', kind)
                self.send_header('Content-Length', str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def do_GET(self):
                if self.path == '/metrics':
                    return self.answer(200, 'nv_inference_request_success{model="digits",version="4"} %d\n' % Refuses.answered, 'text/plain')
                self.answer(200, json.dumps({'name': 'digits', 'platform': 'test', 'inputs': [{'name': 'x', 'datatype': 'FP32', 'shape': [-1, 64]}],
                                             'outputs': [{'name': 'y', 'datatype': 'FP32', 'shape': [-1, 10]}]}))

            def do_POST(self):
                self.rfile.read(int(self.headers['Content-Length']))
                with lock:
                    Refuses.answered += 1
                    last = Refuses.answered % 5 == 0
                if last:
                    return self.answer(503, json.dumps({'error': 'out of tea'}))
                self.answer(200, json.dumps({'model_name': 'digits', 'model_version': '4', 'outputs': [
                    {'name': 'y', 'datatype': 'FP32', 'shape': [1, 10], 'data': [0.1] * 10}]}))
        lock = threading.Lock()
        server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Refuses)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = 'http://127.0.0.1:%d' % server.server_address[1]
        try:
            with tempfile.TemporaryDirectory() as directory:
                report, images = pathlib.Path(directory) / 'report.json', pathlib.Path(directory) / 'images'
                # a volume of a ConfigMap has links too
                images.symlink_to(m.DIGITS / 'test-images.idx3-ubyte')
                command = [m.VARDA, 'predict', 'digits', '--url', url, '--images', images, '--clients', '4', '-o', 'json',
                           '--replica', url, '--report', report]
                out = json.loads(subprocess.run(command + ['--until-version', '4', '--duration', '300ms'], capture_output=True, text=True, check=True, timeout=m.seconds(120)).stdout)
                self.assertEqual(json.loads(report.read_text()), out)
                self.assertEqual(out['requests'], Refuses.answered)
                self.assertEqual(out['failures'], Refuses.answered // 5)
                self.assertEqual({e['message']: e['requests'] for e in out['errors']}, {'out of tea': out['failures']})
                self.assertEqual({v['version']: v['requests'] for v in out['versions']}, {'4': out['requests'] - out['failures']})
                self.assertEqual(out['connections']['kept'] + out['connections']['new'], out['requests'])
                self.assertTrue(out['connections']['new'] > 0 and out['connections']['kept'] > 0 and out['reachedVersion'])
                self.assertEqual(out['replicas'], [{'url': url, 'answered': out['requests']}])
                out = json.loads(subprocess.run(command + ['--until-version', '5', '--longest', '300ms'], capture_output=True, text=True, check=True, timeout=m.seconds(120)).stdout)
                self.assertFalse(out['reachedVersion'])
                done = subprocess.run(command, capture_output=True, text=True, timeout=m.seconds(60))
                self.assertEqual(done.returncode, 1)
                self.assertIn('--replica', done.stderr)
        finally:
            server.shutdown()
            server.server_close()


if __name__ == '__main__':
    unittest.main()
