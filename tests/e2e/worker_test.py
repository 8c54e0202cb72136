"""Workers of jobs on a node: their requests to the agent and their reports, through the gateway and
the operator, with real processes."""
import concurrent.futures, contextlib, http.client, http.server, json, os, pathlib, shutil, signal, socket, socketserver, stat, subprocess, sys, tempfile, threading, unittest, urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402
from faulty_link import FaultyLink  # noqa: E402

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / 'examples/workers'
EDGE_WORKERS = {'python': [sys.executable, str(EXAMPLES / 'python/edge_worker.py')], **({'cpp': [str(m.EDGE_WORKER)]} if m.EDGE_WORKER.exists() else {})}
DIGITS = 'models.edgeai.io/default/digits'


def worker(name, uid, **assignment):
    return {'key': 'default/' + name, 'uid': uid, 'owner': 'Experiment/digits', 'assignment': assignment}


def accuracy(value):
    return {'models': {DIGITS: {'metrics': {'accuracy': value}}}}


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__('localhost', timeout=m.seconds(60))
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self.path)


class RunsExamples:
    # Logs go to self.work.
    def run_example(self, name, command, **environment):
        """(process, base URL) of a listening worker."""
        log = self.work / (name + '.log')
        begins = log.stat().st_size if log.exists() else 0
        with open(log, 'ab') as out:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env={**os.environ, 'POD_IP': '127.0.0.1', **environment})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

        def port():
            self.assertIsNone(process.poll(), log.read_text())
            for line in log.read_bytes()[begins:].splitlines():
                if b'worker listens' in line and line.endswith(b'}'):
                    return json.loads(line)['port']
        return process, 'http://127.0.0.1:%d' % m.wait_until('%s listens' % name, port)

    @staticmethod
    def http(url, body=None):
        with m.DIRECT.open(urllib.request.Request(url, data=body), timeout=m.seconds(60)) as response:
            return json.loads(response.read())


class Workers(RunsExamples, unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        self.varda = m.Machine(self.work / 'cloud', nodes=['cloud=cloud'])
        self.data, self.agent, self.link = self.work / 'line7', None, None
        self.addCleanup(self.clean_up)
        line = self.varda.up('--gateway', '127.0.0.1:0')
        self.link = FaultyLink(int(line.split('gateway https://127.0.0.1:')[1].split(',')[0]))
        token = self.work / 'line7.token'
        token.write_text(self.varda.varda('join-token', '--node', 'line7'))
        token.chmod(0o600)
        self.command = [m.VARDA, 'agent', *m.LOOPBACK, '--node', 'line7', '--gateway', 'https://127.0.0.1:%d' % self.link.port, '--join-token-file', str(token),
                        '--worker-listen', '127.0.0.1:0', '--data-dir', str(self.data)]
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

    def start(self):
        environment = {k: v for k, v in os.environ.items() if k != 'KUBECONFIG'}
        with open(self.work / 'agent.log', 'ab') as log:
            self.agent = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)

    def kill(self):
        self.agent.send_signal(signal.SIGKILL)
        self.agent.wait()

    # ---- the cloud
    def edge_node(self):
        return self.varda.get('edgenode', 'line7')

    def expect(self, *workers):
        """Writes the expected workers, like a controller of jobs."""
        self.varda.kubectl('patch', 'edgenode', 'line7', '--type', 'merge', '-p', json.dumps({'spec': {'workers': workers}}))

    def report(self, name):
        for one in self.edge_node().get('status', {}).get('workers', []):
            if one['key'] == 'default/' + name:
                return one['report']
        return {}

    def metrics(self):
        status = self.varda.get('model.edgeai.io', 'digits').get('status', {})
        return {one['key']: one['value'] for one in status.get('metrics', [])}

    # ---- the worker
    def token(self, name):
        return m.wait_until('a token of %s' % name, lambda: (self.data / 'workers/default' / name / 'token').read_text())

    def ask(self, token, method, path, body=None, port=False, at=None):
        """(status, JSON or text) over the socket, or over the port."""
        if port:
            connection = http.client.HTTPConnection((self.data / 'worker/worker.url').read_text().split('//')[1], timeout=m.seconds(60))
        else:
            connection = UnixConnection(at or self.data / 'worker/worker.sock')
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        with contextlib.closing(connection):
            connection.request(method, path, body=body, headers={'Authorization': 'Bearer ' + token} if token else {})
            response = connection.getresponse()
            text = response.read().decode(errors='replace')
        try:
            return response.status, json.loads(text)
        except ValueError:
            return response.status, text

    def assignment(self, token):
        return m.wait_until('an assignment', lambda: (lambda s, b: b if s == 200 else None)(*self.ask(token, 'GET', '/v1/assignment')))

    def test_worker_gets_assignments_and_its_results_survive_a_kill(self):
        self.varda.kubectl('apply', '-f', '-', input=json.dumps({
            'apiVersion': 'edgeai.io/v1alpha1', 'kind': 'Model', 'metadata': {'name': 'digits'}, 'spec': {'modelUrl': '/models/digits', 'format': 'onnx'}}))
        m.wait_until('an EdgeNode', self.edge_node)
        self.expect(worker('eval', 'j1', round=1), worker('train', 'j1'))
        token = self.token('eval')
        self.assertEqual(stat.S_IMODE((self.data / 'workers/default/eval/token').stat().st_mode), 0o600)
        self.assertEqual(stat.S_IMODE((self.data / 'worker/worker.sock').stat().st_mode), 0o660)
        self.assertEqual(sorted(os.listdir(self.data / 'worker')), ['worker.sock', 'worker.url'], 'it is given to every worker')
        # A mount holds the directory itself, even if another directory replaces it at the path.
        mount = os.open(self.data / 'worker', os.O_PATH | os.O_DIRECTORY)
        self.addCleanup(os.close, mount)
        first = self.assignment(token)
        self.assertEqual((first['worker'], first['node'], first['assignment']), ('default/eval', 'line7', {'round': 1}))
        self.assertEqual(self.ask(token, 'POST', '/v1/register', {'version': '1.0', 'capabilities': ['resume']}), (200, first))

        # A change wakes clients that wait for it.
        with concurrent.futures.ThreadPoolExecutor() as pool:
            waits = [pool.submit(self.ask, token, 'GET', '/v1/assignment?timeoutSeconds=60&after=' + first['revision'], port=port) for port in (False, True)]
            self.expect(worker('eval', 'j1', round=2), worker('train', 'j1'))
            for wait in waits:
                status, second = wait.result(120)
                self.assertEqual((status, second['assignment']), (200, {'round': 2}))

        # A worker's report reaches the cloud, and the operator writes it into the Model.
        self.assertEqual(self.ask(token, 'PUT', '/v1/results/eval', accuracy(0.5))[0], 200)
        m.wait_until('the first accuracy', lambda: self.metrics() == {'accuracy': '0.5'})
        self.assertEqual(self.report('eval')['registered']['version'], '1.0')

        # The link is down. The agent is killed right after it confirmed a result as durable.
        self.link.set('down')
        for step in range(300):
            status, said = self.ask(token, 'PUT', '/v1/progress', {'step': step, 'steps': 300}, port=True)
            self.assertEqual((status, said), (202, {'item': 'progress', 'durable': False}))
        for value in (0.7, 0.9, 0.9):  # the last value is sent twice
            self.assertEqual(self.ask(token, 'PUT', '/v1/results/eval', accuracy(value)), (200, {'item': 'results/eval', 'durable': True}))
        self.kill()
        self.assertTrue((self.data / 'worker/worker.sock').exists(), 'what a crash leaves behind')
        self.start()
        self.assertEqual(m.wait_until('the agent again', lambda: self.assignment(token)), second)
        self.assertEqual(self.ask(token, 'GET', '/v1/assignment', at='/proc/self/fd/%d/worker.sock' % mount), (200, second))
        other = subprocess.run(self.command, capture_output=True, text=True, timeout=m.seconds(120), env={k: v for k, v in os.environ.items() if k != 'KUBECONFIG'})
        self.assertNotEqual(other.returncode, 0, 'one agent a data directory')
        self.assertEqual(self.ask(token, 'PUT', '/v1/progress', {'fraction': 1})[0], 202)
        self.link.set('none')
        m.wait_until('the last accuracy', lambda: self.metrics() == {'accuracy': '0.9'})
        report = m.wait_until('the last progress', lambda: (lambda r: r if r.get('progress', {}).get('fraction') == 1 else None)(self.report('eval')))
        self.assertEqual((report['registered']['version'], sorted(report['results'])), ('1.0', ['eval']))
        self.assertIn(report['sequence'], (2, 3))  # 0.7 may have had a separate sequence number
        self.assertEqual(self.report('train'), {})

        reporters = self.varda.get('model.edgeai.io', 'digits')['status']['reporters']
        self.assertEqual([(r['node'], r['worker'], r['uid'], r['sequence']) for r in reporters], [('line7', 'default/eval', 'j1', report['sequence'])])

        # One worker is no longer expected. Another one is replaced under the same name.
        self.expect(worker('eval', 'j2'))
        m.wait_until('the old token is refused', lambda: self.ask(token, 'GET', '/v1/assignment')[0] == 401)
        m.wait_until('only one worker has a token', lambda: os.listdir(self.data / 'workers/default') == ['eval'])
        anew = m.wait_until('another token', lambda: (lambda t: t if t != token else None)(self.token('eval')))
        self.assertEqual(self.assignment(anew)['uid'], 'j2')
        self.assertEqual(self.ask(anew, 'PUT', '/v1/results/eval', accuracy(0.95))[0], 200)
        m.wait_until('its accuracy', lambda: self.metrics() == {'accuracy': '0.95'})

    def test_invalid_tokens_and_requests_of_workers_are_refused(self):
        m.wait_until('an EdgeNode', self.edge_node)
        self.expect(worker('a', 'j1'), worker('b', 'j1', secret='of b'))
        a, b = self.token('a'), self.token('b')
        self.assignment(a)
        self.assignment(b)
        deep = b'{"data": ' + b'[' * 10000 + b']' * 10000 + b'}'
        for port in (False, True):
            for token, method, path, body, status, message in (
                    ('', 'GET', '/v1/assignment', None, 401, 'expected Authorization: Bearer TOKEN'),
                    ('varda-worker.000000000000.' + 64 * '0', 'GET', '/v1/assignment', None, 401, 'no worker of this node has that token'),
                    (a[:-1] + ('0' if a[-1] != '0' else '1'), 'PUT', '/v1/results/r', {'data': 1}, 401, 'no worker of this node has that token'),
                    (a, 'POST', '/v1/register', {'version': '1', 'worker': 'default/b'}, 403, 'worker: the token belongs to default/a'),
                    (a, 'PUT', '/v1/results/r', {'models': {'models.edgeai.io/kube-system/m': {'metrics': {'a': 1}}}}, 403, 'models.'),
                    (a, 'PUT', '/v1/results/r', {'models': {DIGITS: {'metrics': {'a': 'high'}}}}, 400, 'models."%s".metrics."a": it is not a number' % DIGITS),
                    (a, 'PUT', '/v1/results/..%2fx', {'data': 1}, 400, 'the name of a result must have'),
                    (a, 'PUT', '/v1/results/r', b'{"data": ', 400, 'body: it is not JSON'),
                    (a, 'PUT', '/v1/results/r', b'{"data": "\xff\xfe"}', 400, 'body: it is not JSON'),
                    (a, 'PUT', '/v1/results/r', deep, 400, 'body: it is not JSON'),
                    (a, 'PUT', '/v1/results/r', {'dta': 1}, 400, 'body: unknown member "dta", did you mean "data"?'),
                    (a, 'PUT', '/v1/results/r', {'data': 'x' * (40 << 10)}, 413, 'the body has 40972 bytes, and 32768 are allowed'),
                    (a, 'GET', '/v1/nothing', None, 404, 'no such path'),
                    (a, 'GET', '/v1/progress', None, 405, 'this path takes PUT only')):
                got, said = self.ask(token, method, path, body, port)
                self.assertEqual(got, status, (path, said))
                self.assertTrue((said['message'] if isinstance(said, dict) else said).startswith(message), said)
        # A report with b's token belongs to b, and nothing from the attempts above was stored.
        self.assertEqual(self.ask(b, 'PUT', '/v1/results/r', {'data': 'of b'})[0], 200)
        m.wait_until('the result of b', lambda: self.report('b').get('results', {}).get('r', {}).get('data') == 'of b')
        self.assertEqual(self.report('a'), {})

    # ---- the workers in examples/
    def run_edge_example(self, name):
        return self.run_example(name, EDGE_WORKERS[name], LISTEN_PORT='0', HEM_NAME='AlwaysCloud', VARDA_WORKER_SOCKET=str(self.data / 'worker/worker.sock'),
                                VARDA_WORKER_TOKEN_FILE=str(self.data / 'workers/default' / name / 'token'))

    def wait_for_status(self, url, **wanted):
        return m.wait_until('%s at %s' % (wanted, url), lambda: (lambda s: s if all(s[k] == v for k, v in wanted.items()) else None)(self.http(url + '/status')))

    def wait_for_counts(self, inferences, hard, uploaded):
        wanted = {'inferenceNumber': inferences, 'hardExampleNumber': hard, 'uploadCloudNumber': uploaded}
        for name in EDGE_WORKERS:
            m.wait_until('%s of %s' % (wanted, name), lambda: self.report(name).get('metrics') == wanted)

    def test_example_workers_follow_assignments_and_report_counts(self):
        with self.subTest('the one in C++'):
            if 'cpp' not in EDGE_WORKERS:
                self.skipTest('%s is not built' % m.EDGE_WORKER)
        for version, labels in (('1', ['dark', 'bright']), ('2', ['night', 'day'])):
            (self.work / version).mkdir()
            (self.work / version / 'model.json').write_text(json.dumps({'labels': labels, 'middle': 128, 'spread': 40}))
        cloud, cloud_url = self.run_example('cloud', [sys.executable, str(EXAMPLES / 'python/cloud_worker.py')], BIG_MODEL_BIND_PORT='0', MODEL_VERSION='9')
        m.wait_until('an EdgeNode', self.edge_node)

        def assign(version, policy, url):
            self.expect(*({'key': 'default/' + name, 'uid': 'j1', 'owner': 'Experiment/brightness', 'assignment': {
                'kind': 'JointInferenceService', 'name': 'brightness', 'namespace': 'default', 'role': 'edge', 'hardExampleMining': policy, 'cloud': {'url': url},
                'model': {'name': 'small', 'version': version, 'path': str(self.work / version), 'url': ''}}} for name in EDGE_WORKERS))

        assign('1', {'name': 'CrossEntropy', 'parameters': [{'key': 'threshold_cross_entropy', 'value': '0.5'}]}, '')
        for name in EDGE_WORKERS:
            self.token(name)
        running = {name: self.run_edge_example(name) for name in EDGE_WORKERS}
        instances = {}
        for name, (_, url) in running.items():
            self.wait_for_status(url, policy='CrossEntropy', version='1', cloud='')
            registered = m.wait_until('%s registered' % name, lambda: self.report(name).get('registered'))
            self.assertEqual(registered['capabilities'], ['assignment'])
            instances[name] = registered['instance']
            easy, hard = self.http(url + '/infer', bytes([250] * 64)), self.http(url + '/infer', bytes([130] * 64))
            self.assertEqual((easy['label'], easy['tier'], easy['hard'], 'fallback' in easy), ('bright', 'edge', False, False))
            self.assertEqual((hard['label'], hard['tier'], hard['hard'], hard['fallback']), ('bright', 'edge', True, 'the cloud has no address yet'))
        self.wait_for_counts(2, 1, 0)

        # The cloud's address and another version arrive while the workers run.
        assign('2', {'name': 'Margin', 'parameters': [{'key': 'threshold_margin', 'value': '0.5'}]}, cloud_url)
        for name, (process, url) in running.items():
            self.wait_for_status(url, policy='Margin', version='2', cloud=cloud_url)
            self.assertIsNone(process.poll(), 'it was left running')
            easy, hard = self.http(url + '/infer', bytes([250] * 64)), self.http(url + '/infer', bytes([130] * 64))
            self.assertEqual((easy['label'], easy['tier'], easy['version']), ('day', 'edge', '2'))
            self.assertEqual((hard['label'], hard['tier'], hard['hard'], hard['version']), ('bright', 'cloud', True, '9'))
        self.wait_for_counts(4, 2, 1)

        # The agent is killed and the cloud ends. The workers continue.
        self.kill()
        cloud.terminate()
        self.assertEqual(cloud.wait(60), 0)
        for name, (_, url) in running.items():
            hard = self.http(url + '/infer', bytes([130] * 64))
            self.assertEqual((hard['label'], hard['tier'], hard['hard'], bool(hard['fallback'])), ('day', 'edge', True, True))
        self.start()
        self.wait_for_counts(5, 3, 1)

        # The last report arrives. A restarted worker counts from zero, as another run.
        for name, (process, url) in running.items():
            self.http(url + '/infer', bytes([250] * 64))
            process.terminate()
            self.assertEqual(process.wait(m.seconds(60)), 0)
        self.wait_for_counts(6, 3, 1)
        for name in EDGE_WORKERS:
            self.run_edge_example(name)
        for name in EDGE_WORKERS:
            m.wait_until('another run of %s' % name, lambda: self.report(name)['registered']['instance'] != instances[name])
        self.wait_for_counts(0, 0, 0)


GOOD = b'{"label": "day", "score": 0.75, "version": "9"}'


class OddCloud(socketserver.ThreadingTCPServer):
    """Answers every request with `status` and `body`; a body of None gives a header that never
    ends."""
    daemon_threads, allow_reuse_address = True, True

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers.get('Content-Length', 0)))
            status, body = (200, GOOD) if self.path == '/good/infer' else self.server.says
            if body is None:
                self.wfile.write(b'HTTP/1.1 200 OK\r\nX: ')
                while not self.server.ended.wait(0.1):
                    self.wfile.write(b'x')
                return
            self.send_response(status)
            self.send_header('Location', '/good/infer')
            self.send_header('Content-Length', str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST

        def log_message(self, *args):
            pass

    def __init__(self):
        super().__init__(('127.0.0.1', 0), self.Handler)
        self.says, self.ended = (200, GOOD), threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        pass  # the client did not wait

    def close(self):
        self.ended.set()
        self.shutdown()
        self.server_close()


class CloudAnswers(RunsExamples, unittest.TestCase):
    def test_example_worker_answers_despite_any_cloud_answer(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        cloud = OddCloud()
        self.addCleanup(cloud.close)
        odd = [(200, body) for body in (b'{}', b'[1]', b'7', b'null', b'', b'{"label": "day", "score": "much", "version": "9"}', b'{"label": "day", "score": 0.5}',
                                        b'{"label": ["day"], "score": 0.5, "version": "9"}', b'{"label": "day", "score": NaN, "version": "9"}', b'[' * 100000,
                                        b'\xff\xfe', None)]
        odd += [(302, b''), (404, GOOD), (500, GOOD)]
        for name, command in EDGE_WORKERS.items():
            _, url = self.run_example(name, command, LISTEN_PORT='0', HEM_NAME='AlwaysCloud', CLOUD_URL='http://127.0.0.1:%d' % cloud.server_address[1])
            for number, says in enumerate(odd, 1):
                with self.subTest(worker=name, says=str(says)[:60]):
                    cloud.says = says
                    answer = self.http(url + '/infer', bytes([130] * 64))
                    self.assertEqual((answer['label'], answer['tier'], answer['hard'], bool(answer['fallback'])), ('bright', 'edge', True, True))
                    counts = self.http(url + '/status')
                    self.assertEqual((counts['inferenceNumber'], counts['hardExampleNumber'], counts['uploadCloudNumber']), (number, number, 0))
            cloud.says = (200, GOOD)
            answer = self.http(url + '/infer', bytes([130] * 64))
            self.assertEqual((answer['label'], answer['score'], answer['tier'], answer['version'], 'fallback' in answer), ('day', 0.75, 'cloud', '9', False))


if __name__ == '__main__':
    unittest.main()
