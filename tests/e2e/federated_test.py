"""varda-aggregate on a desk: rounds with hand-written clients, kills in mid-round, hostile clients."""
import array, hashlib, http.client, http.server, json, pathlib, random, resource, shutil, signal, socket, socketserver, struct, subprocess, sys, tempfile, threading, time, unittest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[1] / 'support')]
import machine as m  # noqa: E402

AGGREGATE = str(m.BIN / 'varda-aggregate')
SDK = pathlib.Path(__file__).resolve().parents[2] / 'sdk/python'


def safetensors(tensors, metadata=None):
    """`tensors`: (shape, floats) by name."""
    header, data = {'__metadata__': metadata} if metadata else {}, b''
    for name, (shape, values) in sorted(tensors.items()):
        begin = len(data)
        data += array.array('f', values).tobytes()
        header[name] = {'dtype': 'F32', 'shape': shape, 'data_offsets': [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    return struct.pack('<Q', len(text)) + text + data


def update(task, client, values=1000, **metadata):
    """The update of a client: a function of round and name."""
    draw = random.Random('%d/%s' % (task['round'], client))
    info = {'format': 'varda-update/1', 'task': task['id'], 'base': task['model']['sha256'], 'samples': str(draw.randrange(10, 90)),
            'steps': '1', 'encoding': 'dense', 'metrics': '{"loss": 0.5}', **metadata}
    return safetensors({'w': ([values], [draw.uniform(-1, 1) for _ in range(values)])}, info)


class Aggregator:
    def __init__(self, test, work, *flags, port=0):
        self.test, self.work, self.flags, self.port = test, work, flags, port
        self.start()

    def start(self):
        command = [AGGREGATE, '--model', str(self.work / 'm.safetensors'), '--out', str(self.work / 'out'), '--trust-clients',
                   '--listen', '127.0.0.1:%d' % self.port, '--admin', '127.0.0.1:0', *self.flags]
        with open(self.work / 'log', 'a') as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self.test.addCleanup(self.end)
        line = self.process.stdout.readline()
        if not line.startswith('varda-aggregate is ready: http://'):
            raise AssertionError('not ready: %r\n%s' % (line, (self.work / 'log').read_text()[-2000:]))
        words = line.replace(',', '').split()
        self.port = int(words[3].rsplit(':', 1)[1])
        self.admin = int(words[5].rsplit(':', 1)[1])

    def kill(self):
        self.process.kill()
        self.process.communicate()

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        if not self.process.stdout.closed:
            self.process.communicate()

    def ask(self, client, method, path, body=None, **headers):
        connection = http.client.HTTPConnection('127.0.0.1', self.port, timeout=m.seconds(60))
        try:
            connection.request(method, path, body, {'Varda-Client': client, **{k.replace('_', '-'): v for k, v in headers.items()}})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def read_admin(self, path):
        connection = http.client.HTTPConnection('127.0.0.1', self.admin, timeout=m.seconds(60))
        connection.request('GET', path)
        text = connection.getresponse().read()
        connection.close()
        return text.decode()


class Client(threading.Thread):
    """Takes part until the end. Repeats each request that a killed aggregator did not answer."""

    def __init__(self, aggregator, name, pieces=3):
        super().__init__(daemon=True)
        self.aggregator, self.client, self.pieces = aggregator, name, pieces
        self.accepted, self.refused, self.end, self.problem = 0, [], None, None

    def ask(self, *arguments, **headers):
        deadline = time.monotonic() + m.seconds(120)
        while True:
            try:
                return self.aggregator.ask(self.client, *arguments, **headers)
            except (OSError, http.client.HTTPException):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def send(self, task):
        data = update(task, self.client)
        path = '/v1/updates/%s/sha256:%s' % (task['id'], hashlib.sha256(data).hexdigest())
        while True:
            status, headers, _ = self.ask('HEAD', path)
            if status == 200:
                return 200
            first = int(headers.get('Upload-Offset', 0))
            last = min(len(data), first + len(data) // self.pieces + 1)
            status, headers, text = self.ask('PUT', path, data[first:last], Content_Range='bytes %d-%d/%d' % (first, last - 1, len(data)))
            if status in (202, 503) or (status == 409 and headers.get('Upload-Offset')):
                continue
            if status not in (200, 201):
                self.refused.append((status, json.loads(text)))
            return status

    def run(self):
        try:
            after = ''
            while self.end is None:
                status, _, text = self.ask('GET', '/v1/task?wait=20&after=' + after)
                if status in (204, 503):
                    time.sleep(0.02 if status == 503 else 0)
                    continue
                task = json.loads(text)
                after = task['id']
                if task['kind'] == 'end':
                    self.end = task
                elif task['kind'] == 'train':
                    self.accepted += self.send(task) in (200, 201)
        except Exception as error:  # shown by the test
            self.problem = error


class Agent:
    """The worker API of a node's agent, as far as the aggregator uses it."""

    def __init__(self, directory, assignment):
        self.assignment, self.revision, self.changed = assignment, 1, threading.Condition()
        self.registered, self.progress, self.results, self.artifacts = [], [], {}, {}
        self.socket, self.token = directory / 'worker.sock', directory / 'token'
        self.token.write_text('secret')
        agent = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def log_message(self, *_):
                pass

            def answer(self, status, body, **headers):
                data = json.dumps(body).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace('_', '-'), value)
                self.send_header('Content-Length', str(len(data)))
                self.send_header('Connection', 'close')
                self.end_headers()
                if self.command != 'HEAD':
                    self.wfile.write(data)
                self.close_connection = True

            def handle_one(self):
                body = self.rfile.read(int(self.headers.get('Content-Length') or 0))
                if self.headers.get('Authorization') != 'Bearer secret':
                    return self.answer(401, {})
                path, _, query = self.path.partition('?')
                if path == '/v1/register':
                    agent.registered.append(json.loads(body))
                    return self.answer(200, agent.answer())
                if path == '/v1/assignment':
                    with agent.changed:
                        agent.changed.wait_for(lambda: 'after=r%d&' % agent.revision not in query + '&', 20)
                    return self.answer(200, agent.answer())
                if path == '/v1/progress':
                    agent.progress.append(json.loads(body))
                    return self.answer(202, {})
                name = path.rsplit('/', 1)[1]
                if path.startswith('/v1/results/'):
                    agent.results[name] = json.loads(body)
                    return self.answer(200, {})
                if path.startswith('/v1/artifacts/'):
                    if self.command == 'HEAD':
                        return self.answer(404, {})
                    agent.artifacts[name] = body
                    return self.answer(201, {'sha256': hashlib.sha256(body).hexdigest()})
                self.answer(404, {})
            do_GET = do_PUT = do_POST = do_HEAD = handle_one

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

            def get_request(self):
                connection, _ = super().get_request()
                return connection, ('agent', 0)
        self.server = Server(str(self.socket), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self):
        return {'worker': 'default/digits-aggregator', 'uid': 'u', 'revision': 'r%d' % self.revision, 'assignment': self.assignment}

    def assign(self, assignment):
        with self.changed:
            self.assignment, self.revision = assignment, self.revision + 1
            self.changed.notify_all()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class StreamClient(Client):
    """Speaks through a stream: the agent of the node writes a PROXY header first."""
    uid = 'job-uid'

    def ask(self, method, path, body=None, **headers):
        tlv = lambda kind, text: struct.pack('>BH', kind, len(text)) + text.encode()
        tlvs = tlv(0xe0, 'edge0') + tlv(0xe1, self.client) + tlv(0xe2, self.uid)
        source = socket.inet_aton('127.0.0.1') * 2 + struct.pack('>HH', 40000, 7363)
        prefix = b'\r\n\r\n\0\r\nQUIT\n\x21\x11' + struct.pack('>H', len(source + tlvs)) + source + tlvs
        deadline = time.monotonic() + m.seconds(120)
        while True:
            connection = http.client.HTTPConnection('127.0.0.1', self.aggregator.port, timeout=m.seconds(60))
            try:
                connection.connect()
                connection.sock.sendall(prefix)
                connection.request(method, path, body, {k.replace('_', '-'): v for k, v in headers.items()})
                answer = connection.getresponse()
                return answer.status, answer.headers, answer.read()
            except (OSError, http.client.HTTPException):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            finally:
                connection.close()


class Federated(unittest.TestCase):
    def setUp(self):
        self.base = pathlib.Path(tempfile.mkdtemp(prefix='varda-federated-'))
        self.addCleanup(shutil.rmtree, self.base, ignore_errors=True)

    def work(self, name):
        work = self.base / name
        work.mkdir()
        (work / 'm.safetensors').write_bytes(safetensors({'w': ([1000], [0.5] * 1000)}))
        return work

    def join(self, clients):
        for client in clients:
            client.join(m.seconds(120))
            self.assertFalse(client.is_alive(), 'a client waits for ever')
            self.assertIsNone(client.problem)

    ROUNDS = ('--quorum', '1', '--minimum-clients', '3', '--clients', '3', '--evaluate-every', '0', '--aggregator', 'FedAvgM')

    def run_job(self, name, kills, rounds=6, seed=1):
        """The SHA-256 of the result, after `kills` kills at random moments."""
        work = self.work(name)
        aggregator = Aggregator(self, work, *self.ROUNDS, '--rounds', str(rounds))
        clients = [Client(aggregator, 'site-%d' % i) for i in range(3)]
        draw = random.Random(seed)
        for client in clients:
            client.start()
        done = 0
        while done < kills:
            time.sleep(draw.uniform(0, 0.08))  # the moment of the kill, not a wait for something
            if aggregator.process.poll() is not None:
                break
            aggregator.kill()
            done += 1
            aggregator.start()
        self.join(clients)
        code = aggregator.process.wait(m.seconds(60))
        self.assertEqual(code, 0, (work / 'log').read_text()[-2000:])
        for client in clients:
            self.assertEqual(client.refused, [])
            self.assertFalse(client.end['failed'])
        report = json.loads((work / 'out/report.json').read_text())
        self.assertEqual([record['updates'] for record in report['history']], [3] * rounds)
        return hashlib.sha256((work / 'out/model.safetensors').read_bytes()).hexdigest(), done

    def test_killed_aggregator_ends_with_the_same_model(self):
        model, _ = self.run_job('calm', 0)
        for seed in (1, 2):
            again, kills = self.run_job('killed%d' % seed, 12, seed=seed)
            self.assertGreater(kills, 2)
            self.assertEqual(again, model)

    def test_privacy_budget_ends_the_job_before_it_is_exceeded(self):
        work = self.work('private')
        settings = work / 'settings.yaml'
        settings.write_text('{aggregator: {name: FedAvg}, privacy: {clip: 1, noiseMultiplier: 2, epsilonMax: 8}}')
        aggregator = Aggregator(self, work, '--settings', str(settings), '--minimum-clients', '3', '--clients', '3', '--rounds', '1000', '--evaluate-every', '0')
        clients = [Client(aggregator, 'site-%d' % i) for i in range(3)]
        for client in clients:
            client.start()
        self.join(clients)
        self.assertEqual(aggregator.process.wait(m.seconds(60)), 0, (work / 'log').read_text()[-2000:])
        report = json.loads((work / 'out/report.json').read_text())
        self.assertEqual((report['reason'], report['failed']), ('PrivacyBudget', False), report['message'])
        self.assertLess(len(report['history']), 100)
        self.assertGreater(report['epsilon'], 4)
        self.assertLessEqual(report['epsilon'], 8)
        self.assertIn('PrivacyBudget', (work / 'out/report.html').read_text())

    def test_job_without_a_quorum_fails_and_says_so(self):
        work = self.work('quorum')
        aggregator = Aggregator(self, work, '--minimum-clients', '2', '--clients', '2', '--round-deadline', '1s', '--rounds', '2')
        honest, silent = Client(aggregator, 'site-0'), 'site-1'
        aggregator.ask(silent, 'GET', '/v1/task')
        honest.start()
        self.join([honest])
        self.assertEqual(honest.accepted, 1)
        self.assertTrue(honest.end['failed'])
        self.assertEqual(honest.end['reason'], 'NoQuorum')
        aggregator.ask(silent, 'GET', '/v1/task')  # the aggregator waits until each client knows
        self.assertEqual(aggregator.process.wait(m.seconds(60)), 1)
        self.assertIn('round 1 has 1 of 2 updates after 5 deadlines', (work / 'log').read_text())

    def test_poisoned_updates_are_refused_and_the_client_is_excluded(self):
        work = self.work('poison')
        aggregator = Aggregator(self, work, '--minimum-clients', '2', '--clients', '3', '--rounds', '5', '--evaluate-every', '0')
        clients = [Client(aggregator, 'site-%d' % i) for i in range(2)]

        class Poisoner(Client):
            def send(self, task):
                data = bytearray(update(task, self.client))
                data[-4:] = struct.pack('<f', float('nan'))
                path = '/v1/updates/%s/sha256:%s' % (task['id'], hashlib.sha256(data).hexdigest())
                status, _, text = self.ask('PUT', path, bytes(data))
                self.refused.append((status, json.loads(text)['reason']))
                return status
        poisoner = Poisoner(aggregator, 'site-9')
        for client in [*clients, poisoner]:
            client.start()
        self.join([*clients, poisoner])
        self.assertEqual(aggregator.process.wait(m.seconds(60)), 0)
        self.assertEqual([client.accepted for client in clients], [5, 5])
        self.assertEqual(poisoner.refused, [(422, 'not_finite')] * 3)
        report = json.loads((work / 'out/report.json').read_text())
        self.assertEqual([record['refused'] for record in report['history']], [1, 1, 1, 0, 0])

    def test_slow_and_idle_connections_do_not_hold_the_round(self):
        work = self.work('slow')
        aggregator = Aggregator(self, work, *self.ROUNDS, '--rounds', '3')
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        idle = min(1000, (hard if hard != resource.RLIM_INFINITY else 4096) - 200)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, idle + 200)) if hard != resource.RLIM_INFINITY else idle + 200, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        connections = []
        self.addCleanup(lambda: [c.close() for c in connections])
        for i in range(idle):
            connections.append(socket.create_connection(('127.0.0.1', aggregator.port), m.seconds(60)))
            if i % 2:  # a head that never ends
                connections[-1].sendall(b'PUT /v1/updates/1-train-0/sha256:' + b'0' * 64 + b' HTTP/1.1\r\nHost: a\r\n')
        clients = [Client(aggregator, 'site-%d' % i) for i in range(3)]
        for client in clients:
            client.start()
        self.join(clients)
        self.assertEqual(aggregator.process.wait(m.seconds(60)), 0)
        self.assertEqual([client.accepted for client in clients], [3, 3, 3])

    def test_stopped_job_continues_with_the_same_command(self):
        work = self.work('stop')
        aggregator = Aggregator(self, work, *self.ROUNDS, '--rounds', '2')
        status, _, _ = aggregator.ask('site-0', 'GET', '/v1/task')
        self.assertEqual(status, 204)
        # Before the first state is on the disk, no client has a task, and the job has no identity.
        m.wait_until('the state is on the disk', lambda: (work / 'out/rounds/state.json').exists())
        aggregator.process.send_signal(signal.SIGTERM)
        self.assertEqual(aggregator.process.wait(m.seconds(30)), 128 + signal.SIGTERM)
        aggregator.process.communicate()
        job = json.loads((work / 'out/rounds/state.json').read_text())['job']
        aggregator.start()
        self.assertEqual(json.loads(aggregator.read_admin('/status'))['job'], job)
        clients = [Client(aggregator, 'site-%d' % i) for i in range(3)]
        for client in clients:
            client.start()
        self.join(clients)
        self.assertEqual(aggregator.process.wait(m.seconds(60)), 0)

    def test_pod_reports_to_the_agent_and_hands_over_the_model(self):
        work = self.work('pod')
        names = ['default/digits-train-%d' % i for i in range(2)]
        settings = {'rounds': 3, 'quorum': 1, 'minimumClients': 2, 'evaluation': {'every': 0}, 'client': {'when': {}}}
        agent = Agent(work, {'participants': [{'worker': name, 'node': 'edge0'} for name in names], 'parameters': dict(settings, rounds=4)})
        self.addCleanup(agent.stop)
        with socket.create_server(('127.0.0.1', 0)) as probe:
            port = probe.getsockname()[1]
        environment = {'PATH': '/usr/bin:/bin', 'VARDA_WORKER_SOCKET': str(agent.socket), 'VARDA_WORKER_TOKEN_FILE': str(agent.token), 'POD_IP': '127.0.0.1',
                       'AGG_BIND_PORT': str(port), 'BASE_MODEL_URL': str(work / 'm.safetensors'), 'MODEL_URL': str(work / 'out'), 'PARTICIPANTS_COUNT': '2',
                       'PARAMETERS': json.dumps(settings), 'FEDERATED': json.dumps({'job': 'default/digits', 'uid': 'job-uid'})}
        with open(work / 'log', 'a') as log:
            process = subprocess.Popen([AGGREGATE, '--worker'], env=environment, stderr=log)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        aggregator = Aggregator.__new__(Aggregator)
        aggregator.port = port
        clients = [StreamClient(aggregator, name) for name in names]
        strangers = [StreamClient(aggregator, 'default/digits-train-9'), StreamClient(aggregator, names[0])]
        strangers[1].uid = 'another-job'
        for client in clients:
            client.start()
        for stranger in strangers:
            status = 503
            while status == 503:  # until the assignment is there
                status = stranger.ask('GET', '/v1/task')[0]
            self.assertEqual(status, 403)
        self.join(clients)
        self.assertEqual(process.wait(m.seconds(60)), 0, (work / 'log').read_text()[-2000:])
        self.assertIn('assignment', agent.registered[0]['capabilities'])
        self.assertEqual([client.accepted for client in clients], [4, 4])  # the assignment has more rounds than the pod's variable
        final = agent.results['final']['data']
        self.assertEqual((final['artifact'], final['file'], final['format'], final['participants']), ('model', 'model.safetensors', 'safetensors', 2))
        self.assertEqual(hashlib.sha256(agent.artifacts['model']).digest(), hashlib.sha256((work / 'out/model.safetensors').read_bytes()).digest())
        self.assertEqual(len(agent.artifacts['metrics'].splitlines()), 5)
        self.assertEqual([record['participants'] for record in agent.results['rounds']['data']['history']], [2, 2, 2, 2])
        self.assertTrue(all(report['step'] <= report['steps'] for report in agent.progress))
        self.assertIn(agent.progress[-1]['phase'], ('Waiting', 'Training', 'Aggregating', 'Uploading'))

    def test_pod_without_a_model_reports_a_permanent_error(self):
        work = self.work('broken')
        agent = Agent(work, {'participants': []})
        self.addCleanup(agent.stop)
        environment = {'PATH': '/usr/bin:/bin', 'VARDA_WORKER_SOCKET': str(agent.socket), 'VARDA_WORKER_TOKEN_FILE': str(agent.token),
                       'MODEL_URL': str(work / 'out'), 'FEDERATED': '{"uid": "u"}'}
        done = subprocess.run([AGGREGATE, '--worker'], env=environment, capture_output=True, text=True, timeout=m.seconds(60))
        self.assertEqual(done.returncode, 2)
        self.assertEqual(agent.results['error']['data'], {
            'message': 'the variable BASE_MODEL_URL is missing: the aggregator needs spec.aggregationWorker.model', 'permanent': True})

    def test_metrics_show_the_round(self):
        aggregator = Aggregator(self, self.work('metrics'), *self.ROUNDS, '--rounds', '2')
        text = aggregator.read_admin('/metrics')
        for line in ('varda_aggregate_round 1', 'varda_aggregate_rounds 2', 'varda_aggregate_phase{phase="Waiting"} 1'):
            self.assertIn(line, text)

    def test_wrong_input_is_named(self):
        work = self.work('wrong')
        for flags, why in ((['--rounds', '0'], 'rounds must be a whole number from 1 to 100000, not 0'),
                           (['--aggregator', 'FedAgv'], 'FedAgv'), (['--encoding', 'zip'], 'compression.encoding must be dense'),
                           (['--settings', str(work / 'none.yaml')], 'does not exist')):
            done = subprocess.run([AGGREGATE, '--model', str(work / 'm.safetensors'), '--out', str(work / 'out'), '--listen', '127.0.0.1:0', *flags],
                                  capture_output=True, text=True, timeout=m.seconds(30))
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(why, done.stderr)

    def test_python_sdk_trains(self):
        """With numpy, which Debian has as python3-numpy."""
        try:
            import numpy  # noqa: F401
        except ImportError:
            self.skipTest('python3-numpy is not installed')
        sys.path.insert(0, str(SDK))
        import numpy as np
        import varda_federated
        work = self.work('sdk')
        (work / 'm.safetensors').write_bytes(varda_federated.write_safetensors({'w': np.zeros((4, 2), '<f4')}, {}))
        aggregator = Aggregator(self, work, '--minimum-clients', '3', '--clients', '3', '--rounds', '8', '--encoding', 'int8', '--quorum', '1')
        wanted = np.arange(8).reshape(4, 2)

        def client(seed):
            inputs = np.random.default_rng(seed).normal(size=(60, 4))
            targets = inputs @ wanted

            def train(weights, task):
                for _ in range(20):
                    weights['w'] -= (0.1 * inputs.T @ (inputs @ weights['w'] - targets) / 60).astype('<f4')
                return weights, 60, {'loss': ((inputs @ weights['w'] - targets) ** 2).mean()}

            def evaluate(weights, task):
                return 60, {'loss': ((inputs @ weights['w'] - targets) ** 2).mean()}
            varda_federated.Client('http://127.0.0.1:%d' % aggregator.port, 'c%d' % seed, work / ('c%d' % seed)).run(train, evaluate)
        threads = [threading.Thread(target=client, args=(seed,), daemon=True) for seed in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(m.seconds(120))
        self.assertEqual(aggregator.process.wait(m.seconds(60)), 0)
        result, _ = varda_federated.read_safetensors((work / 'out/model.safetensors').read_bytes())
        self.assertLess(float(np.abs(result['w'] - wanted).max()), 0.05)

    def test_python_clients_round_by_name_and_keep_the_loss_of_a_refused_update(self):
        try:
            import numpy as np
        except ImportError:
            self.skipTest('python3-numpy is not installed')
        sys.path.insert(0, str(SDK))
        import varda_federated as sdk
        work = self.work('rounding')

        class Client(sdk.Client):
            accepts, sent = True, ()

            def file(self, digest, size):
                return sdk.write_safetensors({'w': np.zeros(1000, '<f4')}, {})

            def upload(self, task, path):
                self.sent += (sdk.read_safetensors(pathlib.Path(path).read_bytes())[0]['w'].tobytes(),)
                return self.accepts, 'late'

        def train(weights, task):
            return {'w': np.linspace(-1, 1, 1000).astype('<f4')}, 10, {}

        def task(number):
            return {'id': '%d-train-00000000' % number, 'model': {'sha256': '0' * 64, 'bytes': 1}, 'train': {'seed': 1}, 'update': {'encoding': 'int8'}}
        one, two, again = (Client(name=name, directory=work / place) for name, place in (('c1', 'a'), ('c2', 'b'), ('c1', 'c')))
        for client in (one, two, again):
            client._train(task(1), train)
        self.assertTrue(one.sent != two.sent, 'errors of equal seeds add up')
        self.assertTrue(one.sent == again.sent)
        before = one.residual['w'].copy()
        self.assertTrue(before.any())
        one.accepts = False
        one._train(task(2), train)
        self.assertTrue(np.array_equal(one.residual['w'], before), 'the update did not count')
        one.accepts = True
        one._train(task(3), train)
        self.assertFalse(np.array_equal(one.residual['w'], before))


if __name__ == '__main__':
    unittest.main()
