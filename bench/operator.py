#!/usr/bin/env python3
"""The operator with many models and nodes, with the embedded API server as a separate process. Prints a
Markdown table.

    bench/operator.py                                     1,000 models and 100 nodes
    VARDA_BENCH_OPERATOR=10000x1000 bench/operator.py     that many; this size takes a few minutes

Half of the models are in the cloud layer (Deployment, Service), half at the edge (Pod, an item in the
node's EdgeNode), all on the default port. The Nodes look like a cluster's, with labels, conditions,
images and managedFields of realistic size. Each has the report of an agent that has installed its
models. No Pods run, and no latency is simulated. During the measurement, nodes send heartbeats
without changes.
"""
import os, sys
sys.path[:] = [p for p in sys.path if os.path.abspath(p) != os.path.dirname(os.path.abspath(__file__))]  # the local operator.py would hide Python's
import base64, collections, http.client, json, os, pathlib, random, signal, socket, ssl, subprocess, sys, tempfile, threading, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'tests/support'))
import machine as m  # noqa: E402

MODELS, NODES = (int(n) for n in os.environ.get('VARDA_BENCH_OPERATOR', '1000x100').split('x'))
CHANGES = min(100, MODELS // 2)  # per layer
HEARTBEATS = 10       # per second, from the nodes in turn
REST_SECONDS = 10
GIVEN_BACK_SECONDS = 14
MODEL_PATH = '/apis/ai.kubeedge.io/v1alpha1/namespaces/default/inferencemodels'
KINDS = {'InferenceModel': MODEL_PATH, 'Node': '/api/v1/nodes', 'EdgeNode': '/apis/edgeai.io/v1alpha1/edgenodes', 'Pod': '/api/v1/pods',
         'Deployment': '/apis/apps/v1/deployments', 'Service': '/api/v1/namespaces/default/services'}
WRITES = ('CREATE', 'UPDATE', 'PATCH', 'DELETE')


class Api:
    """One persistent connection per thread."""

    def __init__(self, server, context, token):
        self.host, self.context, self.token, self.connection = server.split('//')[1], context, token, None

    def open(self, method, path, body=None, kind='application/json'):
        headers = {'Authorization': 'Bearer ' + self.token} if self.token else {}
        if body is not None:
            headers['Content-Type'] = kind
        while True:
            fresh = self.connection is None
            if fresh:
                self.connection = http.client.HTTPSConnection(self.host, context=self.context, timeout=120)
            try:
                self.connection.request(method, path, json.dumps(body) if body is not None else None, headers)
                return self.connection.getresponse()
            except (http.client.RemoteDisconnected, ConnectionError):
                self.connection = None  # servers close idle connections
                if fresh:
                    raise

    def request(self, method, path, body=None, kind='application/json'):
        response = self.open(method, path, body, kind)
        text = response.read()
        if response.status >= 300:
            raise m.Failed('%s %s: %d %s' % (method, path, response.status, text[:300]))
        return json.loads(text)

    def patch(self, path, body):
        return self.request('PATCH', path, body, 'application/merge-patch+json')


def api_of(machine):
    config = json.loads(machine.kubectl('config', 'view', '--raw', '-o', 'json'))
    cluster, user = config['clusters'][0]['cluster'], config['users'][0]['user']
    context = ssl.create_default_context(cadata=base64.b64decode(cluster['certificate-authority-data']).decode())
    if 'client-certificate-data' in user:
        with tempfile.NamedTemporaryFile() as both:
            both.write(base64.b64decode(user['client-certificate-data']) + b'\n' + base64.b64decode(user['client-key-data']))
            both.flush()
            context.load_cert_chain(both.name)
    return lambda: Api(cluster['server'], context, user.get('token'))


def in_parallel(connect, items, work, threads=4):
    items, failures = list(items), []

    def run(share):
        api = connect()
        try:
            for item in share:
                work(api, item)
        except Exception as e:  # reported below
            failures.append(e)
    running = [threading.Thread(target=run, args=(items[i::threads],)) for i in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if failures:
        raise failures[0]


def on_edge(i):
    return i % 2 == 1


def node_of(i):
    return 'edge%d' % (i // 2 % NODES)


def digest(i, version):
    return '%064x' % (i * 10 + int(version))


def model(i):
    spec = {'modelName': 'model-%d' % i, 'deployToLayer': 'edge' if on_edge(i) else 'cloud', 'frameworkType': 'onnx', 'targetVersion': '4',
            'servingPort': 8080 + (i // 2 // NODES if on_edge(i) else 0),
            'manifest': [{'version': v, 'downloadURL': 'https://files.example/models/%d-%s.tar.gz' % (i, v), 'sha256sum': digest(i, v)} for v in '34']}
    if on_edge(i):
        spec['nodeName'] = node_of(i)
    else:
        spec['service'] = {'type': 'ClusterIP'}  # there are 2,768 node ports
    return {'apiVersion': 'ai.kubeedge.io/v1alpha1', 'kind': 'InferenceModel', 'metadata': {'name': 'model-%d' % i}, 'spec': spec}


def heartbeat():
    now = time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())
    return [{'type': kind, 'status': 'True' if kind == 'Ready' else 'False', 'lastHeartbeatTime': now, 'lastTransitionTime': '2026-01-01T00:00:00Z',
             'reason': 'Kubelet', 'message': 'kubelet says so'} for kind in ('MemoryPressure', 'DiskPressure', 'PIDPressure', 'Ready')]


def add_node(api, n):
    name = 'edge%d' % n
    labels = {'kubernetes.io/hostname': name, 'kubernetes.io/os': 'linux', 'kubernetes.io/arch': 'arm64', 'node-role.kubernetes.io/edge': '', 'site': 'site-%d' % (n % 50)}
    managed = [{'manager': manager, 'operation': 'Update', 'apiVersion': 'v1', 'fieldsType': 'FieldsV1', 'time': '2026-01-01T00:00:00Z',
                'fieldsV1': {'f:metadata': {'f:labels': {'f:' + key: {} for key in labels}}, 'f:status': {'f:conditions': {'k:' + str(k): {'f:lastHeartbeatTime': {}} for k in range(8)}}}}
               for manager in ('edgecore', 'kube-controller-manager')]
    api.request('POST', '/api/v1/nodes', {'apiVersion': 'v1', 'kind': 'Node', 'metadata': {'name': name, 'labels': labels, 'managedFields': managed}})
    images = [{'names': ['registry.example/team/image-%d@sha256:%064x' % (k, k), 'registry.example/team/image-%d:1.%d' % (k, k)], 'sizeBytes': 10000000 + k} for k in range(30)]
    resources = {'cpu': '4', 'memory': '8123456Ki', 'pods': '110', 'ephemeral-storage': '30Gi'}
    api.patch('/api/v1/nodes/%s/status' % name, {'status': {'conditions': heartbeat(), 'images': images, 'capacity': resources, 'allocatable': resources,
              'addresses': [{'type': 'InternalIP', 'address': '10.1.%d.%d' % (n // 250, n % 250)}, {'type': 'Hostname', 'address': name}],
              'nodeInfo': {'kernelVersion': '6.1.0', 'osImage': 'Debian GNU/Linux 12', 'kubeletVersion': 'v1.30.0', 'architecture': 'arm64', 'operatingSystem': 'linux'}}})
    api.request('POST', KINDS['EdgeNode'], {'apiVersion': 'edgeai.io/v1alpha1', 'kind': 'EdgeNode', 'metadata': {'name': name}, 'spec': {}})
    reports = [{'key': 'default/model-%d' % i, 'exposed': '4', 'versions': [{'version': v, 'state': 'Ready', 'sha256': digest(i, v), 'bytes': 7340032} for v in '34']}
               for i in range(MODELS) if on_edge(i) and node_of(i) == name]
    api.patch('%s/%s/status' % (KINDS['EdgeNode'], name), {'status': {'agentVersion': '0.1.0', 'modelRoot': '/var/lib/varda/models', 'address': '10.1.0.1', 'models': reports}})


class Operator:
    def __init__(self, machine, work, number):
        self.socket, self.log = str(work / ('admin-%d.sock' % number)), open(work / ('operator-%d.log' % number), 'wb')
        self.begin = time.monotonic()
        self.process = subprocess.Popen([m.VARDA, 'operator', *m.LOOPBACK, '--kubeconfig', machine.kubeconfig, '--admin', 'unix:' + self.socket, '--no-leader-elect'],
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def get(self, path):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(self.socket)
            s.sendall(b'GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n' % path.encode())
            return b''.join(iter(lambda: s.recv(1 << 16), b'')).decode()

    def sum(self, name, **labels):
        """Sum over a metric's series with those labels."""
        total = 0.0
        for line in self.get('/metrics').splitlines():
            if (line.startswith(name + '{') or line.startswith(name + ' ')) and all('%s="%s"' % pair in line for pair in labels.items()):
                total += float(line.rsplit(' ', 1)[1])
        return total

    def ready(self):
        if self.process.poll() is not None:
            raise SystemExit('the operator ended: %d' % self.process.returncode)
        try:
            return self.get('/readyz').startswith('HTTP/1.1 200')
        except OSError:
            return False

    def reconciles(self):
        return self.sum('controller_runtime_reconcile_total')

    def settle(self, quiet_seconds, ended=lambda: True, limit=900):
        """Seconds from the start to the last reconcile; waits until reconciles pause and `ended` holds."""
        last, since = -1, time.monotonic()
        while True:
            count, now = (self.reconciles(), time.monotonic()) if self.ready() else (-1, time.monotonic())
            if count != last:
                last, since = count, now
            elif count >= 0 and now - since > quiet_seconds and ended():
                return since - self.begin, count
            if now - self.begin > limit:
                raise SystemExit('the operator does not come to rest: %d reconciles' % count)
            time.sleep(0.1)

    def rss_kib(self):
        for line in open('/proc/%d/status' % self.process.pid):
            if line.startswith('VmRSS'):
                return int(line.split()[1])

    def idle_rss_kib(self):
        """RSS after the start's memory was returned, which happens every ten seconds."""
        time.sleep(GIVEN_BACK_SECONDS)
        return self.rss_kib()

    def cpu_seconds(self):
        fields = open('/proc/%d/stat' % self.process.pid).read().rsplit(')', 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        self.log.close()


def writes_by_resource(api):
    """Writes of all clients, as counted by the API server: {series: count}."""
    response = api.open('GET', '/metrics')
    out = collections.Counter()
    for line in response.read().decode().splitlines():
        if line.startswith('apiserver_request_total{') and any('verb="%s"' % verb in line for verb in WRITES):
            series, count = line.rsplit(' ', 1)
            out[series[len('apiserver_request_total'):]] += float(count)
    return out


def writes_so_far(api):
    return sum(writes_by_resource(api).values())


class Watch(threading.Thread):
    """Time at which each new generation of an object was first seen."""

    def __init__(self, api, path):
        super().__init__(daemon=True)
        version = api.request('GET', path + '?limit=1')['metadata']['resourceVersion']
        self.response = api.open('GET', '%s?watch=1&resourceVersion=%s&timeoutSeconds=3600' % (path, version))
        self.received, self.lock = {}, threading.Condition()
        self.start()

    def run(self):
        for line in self.response:
            item = json.loads(line)['object']
            with self.lock:
                self.received[(item['metadata']['name'], item['metadata'].get('generation'))] = time.monotonic()
                self.lock.notify_all()

    def wait_for(self, name, generation):
        with self.lock:
            if not self.lock.wait_for(lambda: (name, generation) in self.received, 60):
                raise SystemExit('%s: no write of generation %d within a minute' % (name, generation))
            return self.received[(name, generation)]


def change(api, watch, chosen, patch_of, child_path, child_of):
    """Seconds from sending a change to the child's write, and to the response of the change."""
    out, answered = [], []
    for i in chosen:
        child = child_of(i)
        generation = api.request('GET', child_path + '/' + child)['metadata']['generation']
        begin = time.monotonic()
        api.patch('%s/model-%d' % (MODEL_PATH, i), patch_of(i))
        answered.append(time.monotonic() - begin)
        out.append(watch.wait_for(child, generation + 1) - begin)
    return out, answered


def main():
    work = pathlib.Path(tempfile.mkdtemp(prefix='varda-bench-'))
    machine = m.Machine(work / 'data')
    server = subprocess.Popen([m.VARDA, 'apiserver', '--data-dir', str(machine.dir), '--listen', '127.0.0.1:0'],
                              stdin=subprocess.DEVNULL, stdout=open(work / 'apiserver.log', 'wb'), stderr=subprocess.STDOUT)
    operators, stop = [], threading.Event()

    def operator():
        operators.append(Operator(machine, work, len(operators)))
        return operators[-1]
    try:
        m.wait_until('the API server', lambda: machine.kubectl('get', 'namespaces'))
        machine.kubectl('apply', '-k', str(m.ROOT / 'deploy/crds'))
        connect = api_of(machine)
        api = connect()

        empty = operator()
        empty.settle(2)
        empty_kib = empty.idle_rss_kib()
        empty.end()

        begin = time.monotonic()
        in_parallel(connect, range(NODES), add_node)
        in_parallel(connect, range(MODELS), lambda one, i: one.request('POST', MODEL_PATH, model(i)))
        populated = time.monotonic() - begin

        cloud, edge = MODELS - MODELS // 2, MODELS // 2
        before = writes_so_far(api)
        first = operator()

        def made():
            return len(api.request('GET', KINDS['Deployment'])['items']) == cloud and len(api.request('GET', KINDS['Pod'])['items']) == edge
        first_seconds, first_reconciles = first.settle(3, made)
        first_writes, first_cpu, first_kib = writes_so_far(api) - before, first.cpu_seconds(), first.rss_kib()
        first.end()

        second = operator()
        again_seconds, again_reconciles = second.settle(3)
        again_cpu, again_kib = second.cpu_seconds(), second.idle_rss_kib()

        sent, between_beats = [0], threading.Lock()

        def beat():
            one = connect()
            while not stop.wait(1 / HEARTBEATS):
                with between_beats:
                    one.patch('/api/v1/nodes/edge%d/status' % (sent[0] % NODES), {'status': {'conditions': heartbeat()}})
                    sent[0] += 1

        def writes_of_others():
            with between_beats:  # no heartbeat is in flight
                return writes_so_far(api) - sent[0]
        beats = threading.Thread(target=beat)
        beats.start()
        at_begin = writes_by_resource(api)
        before, cpu, begin = writes_of_others(), second.cpu_seconds(), time.monotonic()
        time.sleep(REST_SECONDS)
        rest_writes = writes_of_others() - before
        idle = writes_by_resource(api) - at_begin
        if rest_writes > REST_SECONDS:
            print('writes while idle:', *('  %s %d' % one for one in idle.most_common(8)), sep='\n', file=sys.stderr)
        rest_cpu = (second.cpu_seconds() - cpu) / (time.monotonic() - begin)
        chance = random.Random(1)
        cloud_times, answers = change(api, Watch(connect(), '/apis/apps/v1/namespaces/default/deployments'), chance.sample(range(0, MODELS, 2), CHANGES),
                                      lambda i: {'spec': {'replicas': 2}}, '/apis/apps/v1/namespaces/default/deployments', lambda i: 'model-%d' % i)
        edge_times, more = change(api, Watch(connect(), KINDS['EdgeNode']), chance.sample(range(1, MODELS, 2), CHANGES),
                                  lambda i: {'spec': {'targetVersion': '3'}}, KINDS['EdgeNode'], node_of)
        stop.set()
        beats.join()
        counts = {kind: len(api.request('GET', path)['items']) for kind, path in KINDS.items()}
        busy_kib = second.rss_kib()
        second.end()
    except BaseException:
        for log in sorted(work.glob('operator-*.log')):
            print('--- ' + log.name, *log.read_text(errors='replace').splitlines()[-15:], sep='\n', file=sys.stderr)
        raise
    finally:
        stop.set()
        for one in operators:
            if one.process.poll() is None:
                one.process.kill()
                one.process.wait()
        server.terminate()
        server.wait(60)
        machine.close()
    objects = sum(counts.values())

    def percentile(values, p):
        return sorted(values)[min(len(values) - 1, int(p * len(values)))] * 1e3
    rows = [('models, nodes', '', '%d, %d' % (MODELS, NODES), ''),
            ('objects the operator keeps', '', '%d' % objects, ''),
            ('  made by the benchmark in', 's', '%.1f' % populated, ''),
            ('first start to settled: every child written', 's', '%.1f' % first_seconds, ''),
            ('  writes', '', '%d' % first_writes, ''),
            ('  reconciles', '1/s', '%.0f' % (first_reconciles / first_seconds), ''),
            ('  processor time', 's', '%.1f' % first_cpu, ''),
            ('cold start to settled: all is there', 's', '%.1f' % again_seconds, ''),
            ('  reconciles', '1/s', '%.0f' % (again_reconciles / again_seconds), ''),
            ('  processor time', 's', '%.1f' % again_cpu, ''),
            ('RSS of an operator with nothing to do', 'MiB', '%.1f' % (empty_kib / 1024), '≤ 40'),
            ('RSS while idle', 'MiB', '%.1f' % (again_kib / 1024), ''),
            ('  for each object, over the empty one', 'KiB', '%.1f' % ((again_kib - empty_kib) / objects), '≤ 6'),
            ('  after the first start, and after the changes', 'MiB', '%.1f, %.1f' % (first_kib / 1024, busy_kib / 1024), ''),
            ('writes while idle, %d heartbeats a second of nodes' % HEARTBEATS, '1/s', '%.1f' % (rest_writes / REST_SECONDS), '0'),
            ('  processor', '%', '%.1f' % (100 * rest_cpu), ''),
            ('change of a cloud model to its Deployment written, p50', 'ms', '%.1f' % percentile(cloud_times, 0.5), ''),
            ('  p99', 'ms', '%.1f' % percentile(cloud_times, 0.99), ''),
            ('change of an edge model to its EdgeNode written, p50', 'ms', '%.1f' % percentile(edge_times, 0.5), ''),
            ('  p99', 'ms', '%.1f' % percentile(edge_times, 0.99), ''),
            ("the change's own answer, p50", 'ms', '%.1f' % percentile(answers + more, 0.5), '')]
    print('| what | unit | figure | aim |\n|---|---|---:|---|')
    for row in rows:
        print('| %s | %s | %s | %s |' % row)


if __name__ == '__main__':
    main()
