#!/usr/bin/env python3
"""Many JointInferenceServices created at once under `varda up`, until every one of them is Ready. Prints a Markdown table.

    bench/joint_services.py                               1,000 services on 10 edge nodes
    VARDA_BENCH_JOINT=100x2 bench/joint_services.py       100 services on 2 nodes

API server, operator, scheduler, Deployments and Services are real. The nodes are simulated: their
agents are stopped (SIGSTOP) after registration, and this program acts with their credentials. It
reports every bound Pod as running and ready, and every model of a work list as installed, exposed and
served. No file is downloaded and no process started. The simulation shares the cores with the
measured processes.

Finally everything stops, and a single operator starts with the API server's data, to measure memory.
"""
import os, sys
sys.path[:] = [p for p in sys.path if os.path.abspath(p) != os.path.dirname(os.path.abspath(__file__))]  # the local operator.py would hide Python's
import importlib.util, json, os, pathlib, queue, shutil, signal, subprocess, sys, tempfile, threading, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'tests/support'))
import machine as m  # noqa: E402

spec = importlib.util.spec_from_file_location('operator_bench', pathlib.Path(__file__).with_name('operator.py'))
ob = importlib.util.module_from_spec(spec)
spec.loader.exec_module(ob)

SERVICES, NODES = (int(n) for n in os.environ.get('VARDA_BENCH_JOINT', '1000x10').split('x'))
REST_SECONDS = 10
EDGE_NODES = '/apis/edgeai.io/v1alpha1/edgenodes'
SEDNA = '/apis/sedna.io/v1alpha1/namespaces/default'
KINDS = dict(ob.KINDS, JointInferenceService=SEDNA + '/jointinferenceservices', Model=SEDNA + '/models', ReplicaSet='/apis/apps/v1/replicasets',
             Endpoints='/api/v1/endpoints')
NOW = time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())


class Configured:
    """The argument of api_of(): an object that reads a kubeconfig."""

    def __init__(self, machine, path):
        self.machine, self.path = machine, str(path)

    def kubectl(self, *args):
        return self.machine.run([m.KUBECTL, '--kubeconfig', self.path, *args])


def write_pause(items, took):
    """Seconds until the next report: src/api/edgeai/write_pause.h."""
    return min(5 * took, 0.01 * items)


over = threading.Event()  # players: do not report closed connections


class Node:
    """Plays the agent of one node: two watches, and one writer that acts on the latest events."""

    def __init__(self, connect, name, address):
        self.connect, self.name, self.address, self.todo = connect, name, address, queue.Queue()
        self.edge_node, self.pods = None, 0
        for work in (self.watch_pods, self.watch_edge_node, self.write):
            threading.Thread(target=self.keep, args=(work,), daemon=True).start()

    def keep(self, work):
        while True:
            try:
                work(self.connect())
            except Exception as e:  # a broken connection, or a 410: relist
                if not over.is_set():
                    print('%s: %r' % (self.name, e), file=sys.stderr)
                time.sleep(0.1)

    def follow(self, api, path, selector, take):
        query = path + '?fieldSelector=' + selector
        listed = api.request('GET', query)
        for item in listed['items']:
            take('ADDED', item)
        version = listed['metadata']['resourceVersion']
        while True:
            response = api.open('GET', '%s&watch=1&allowWatchBookmarks=true&timeoutSeconds=12&resourceVersion=%s' % (query, version))
            for line in response:
                event = json.loads(line)
                if event['type'] == 'ERROR':
                    return
                version = event['object']['metadata']['resourceVersion']
                if event['type'] != 'BOOKMARK':
                    take(event['type'], event['object'])

    def watch_pods(self, api):
        def take(kind, pod):
            if kind != 'DELETED' and (pod['metadata'].get('deletionTimestamp') or pod.get('status', {}).get('phase') != 'Running'):
                self.todo.put(pod)
        self.follow(api, '/api/v1/pods', 'spec.nodeName=' + self.name, take)

    def watch_edge_node(self, api):
        def take(kind, node):
            if kind != 'DELETED' and node['metadata'].get('generation') != (self.edge_node or {}).get('metadata', {}).get('generation'):
                self.edge_node = node
                self.todo.put(None)
        self.follow(api, EDGE_NODES, 'metadata.name=' + self.name, take)

    def write(self, api):
        """Like an agent, writes the first report at once and joins changes that follow soon after it."""
        waits, earliest = False, 0.0
        while True:
            if waits and time.monotonic() >= earliest:
                begin, waits = time.monotonic(), False
                self.report(api)
                earliest = time.monotonic() + write_pause(len(self.edge_node['spec'].get('models', [])), time.monotonic() - begin)
            try:
                pod = self.todo.get(timeout=max(0.0, earliest - time.monotonic()) if waits else None)
            except queue.Empty:
                continue
            if pod is None:
                waits = True
            elif pod['metadata'].get('deletionTimestamp'):
                api.open('DELETE', '/api/v1/namespaces/%s/pods/%s' % (pod['metadata']['namespace'], pod['metadata']['name']), {'gracePeriodSeconds': 0}).read()
            else:
                self.run(api, pod)

    def run(self, api, pod):
        self.pods += 1
        ip = self.address if pod['spec'].get('hostNetwork') else '127.77.%d.%d' % (self.pods // 250, 1 + self.pods % 250)
        conditions = [{'type': kind, 'status': 'True', 'lastTransitionTime': NOW} for kind in ('PodScheduled', 'Initialized', 'ContainersReady', 'Ready')]
        containers = [{'name': c['name'], 'image': c['image'], 'imageID': '', 'ready': True, 'started': True, 'restartCount': 0,
                       'state': {'running': {'startedAt': NOW}}} for c in pod['spec']['containers']]
        api.patch('/api/v1/namespaces/%s/pods/%s/status' % (pod['metadata']['namespace'], pod['metadata']['name']),
                  {'status': {'phase': 'Running', 'podIP': ip, 'podIPs': [{'ip': ip}], 'hostIP': self.address, 'startTime': NOW, 'conditions': conditions,
                              'containerStatuses': containers}})

    def report(self, api):
        node, models = self.edge_node, []
        for model in node['spec'].get('models', []):
            one = {'key': model['key'], 'exposed': model['target'],
                   'versions': [{'version': v['version'], 'state': 'Ready', 'sha256': v['sha256'], 'bytes': 7340032} for v in model['versions']]}
            if 'serving' in model:
                one['serving'] = {'version': model['target'], 'state': 'Ready'}
                if 'joint' in model:
                    one['joint'] = {'epoch': 'played', 'counters': {'inferences': 0}, 'tiers': [{'name': t['name'], 'state': 'Ready'} for t in model['joint']['tiers']]}
            models.append(one)
        api.patch('%s/%s/status' % (EDGE_NODES, self.name), {'status': {'observedGeneration': node['metadata']['generation'], 'models': models}})


class ReadyWatch(threading.Thread):
    """When each service was first Ready."""

    def __init__(self, api, path):
        super().__init__(daemon=True)
        version = api.request('GET', path + '?limit=1')['metadata']['resourceVersion']
        self.response = api.open('GET', '%s?watch=1&resourceVersion=%s&timeoutSeconds=3600' % (path, version))
        self.ready, self.reasons, self.changed = {}, {}, threading.Condition()
        self.start()

    def run(self):
        for line in self.response:
            item = json.loads(line)['object']
            for condition in item.get('status', {}).get('conditions', []):
                if condition['type'] == 'Ready':
                    with self.changed:
                        self.reasons[item['metadata']['name']] = (condition.get('reason'), condition.get('message'))
                        if condition['status'] == 'True':
                            self.ready.setdefault(item['metadata']['name'], time.monotonic())
                            self.changed.notify_all()

    def wait(self, count, limit=300):
        with self.changed:
            if self.changed.wait_for(lambda: len(self.ready) >= count, limit):
                return
            missing = [name for name in sorted(self.reasons) if name not in self.ready]
            raise SystemExit('%d of %d services are Ready after %d s; %s: %s' % (len(self.ready), count, limit, missing[:1], self.reasons.get(missing[0]) if missing else 'no word'))


def service(i):
    return {'apiVersion': 'sedna.io/v1alpha1', 'kind': 'JointInferenceService', 'metadata': {'name': 'service-%d' % i},
            'spec': {'edgeWorker': {'model': {'name': 'little'}, 'nodeName': 'edge%d' % (i % NODES),
                                    'hardExampleMining': {'name': 'CrossEntropy', 'parameters': [{'key': 'threshold_cross_entropy', 'value': '0.6'}]}},
                     'cloudWorker': {'model': {'name': 'big'}}}}


def main():
    work = pathlib.Path(tempfile.mkdtemp(prefix='varda-bench-'))
    names = ['cloud'] + ['edge%d' % i for i in range(NODES)]
    machine = m.Machine(work / 'data', nodes=['cloud=cloud'] + ['edge%d=edge' % i for i in range(NODES)])
    operators, servers, agents = [], [], []
    try:
        machine.up()
        api = ob.api_of(machine)()
        m.wait_until('all nodes ready', lambda: machine.kubectl('get', 'nodes').count(' Ready') == len(names))
        m.wait_until('all agents have reported', lambda: all(n.get('status', {}).get('modelRoot') for n in api.request('GET', EDGE_NODES)['items']) and
                     len(api.request('GET', EDGE_NODES)['items']) == len(names))
        players = []
        for number, name in enumerate(names):
            agents.append(json.loads((machine.dir / 'nodes' / name / 'agent.json').read_text())['pid'])
            os.kill(agents[-1], signal.SIGSTOP)
            players.append(Node(ob.api_of(Configured(machine, machine.dir / 'nodes' / name / 'agent.kubeconfig')), name, '127.66.0.%d' % (number + 1)))
        empty = ob.Operator(machine, work, 0)
        operators.append(empty)
        empty.settle(2)
        empty_kib, empty_objects = empty.idle_rss_kib(), sum(len(api.request('GET', path)['items']) for path in KINDS.values())
        empty.end()

        for name, digest in (('little', 'a'), ('big', 'b')):
            api.request('POST', SEDNA + '/models', {'apiVersion': 'sedna.io/v1alpha1', 'kind': 'Model', 'metadata': {'name': name},
                    'spec': {'url': 'https://files.example/%s.tar.gz' % name, 'sha256': digest * 64, 'format': 'onnx'}})
        watch = ReadyWatch(ob.api_of(machine)(), KINDS['JointInferenceService'])
        before, begin = ob.writes_so_far(api), time.monotonic()
        ob.in_parallel(ob.api_of(machine), range(SERVICES), lambda one, i: one.request('POST', KINDS['JointInferenceService'], service(i)))
        created = time.monotonic() - begin
        watch.wait(SERVICES)
        settled = sorted(at - begin for at in watch.ready.values())
        time.sleep(5)
        writes = ob.writes_so_far(api) - before

        before = ob.writes_so_far(api)
        time.sleep(REST_SECONDS)
        rest_writes = ob.writes_so_far(api) - before
        over.set()
        for pid in agents:
            os.kill(pid, signal.SIGKILL)  # stopped processes do not handle SIGTERM
        machine.down()
        servers.append(subprocess.Popen([m.VARDA, 'apiserver', '--data-dir', str(machine.dir), '--listen', '127.0.0.1:0'],
                                        stdin=subprocess.DEVNULL, stdout=open(work / 'apiserver.log', 'wb'), stderr=subprocess.STDOUT))
        m.wait_until('the API server alone', lambda: machine.kubectl('get', 'namespaces'))
        api = ob.api_of(machine)()
        second = ob.Operator(machine, work, 1)
        operators.append(second)
        again_seconds, _ = second.settle(3)
        counts = {kind: len(api.request('GET', path)['items']) for kind, path in KINDS.items()}
        kib = second.idle_rss_kib()
        second.end()
        total = counts['Pod']
    finally:
        for one in servers:
            one.kill()
            one.wait()
        for one in operators:
            if one.process.poll() is None:
                one.process.kill()
                one.process.wait()
        machine.close()
        shutil.rmtree(work, ignore_errors=True)
    objects = sum(counts.values()) - empty_objects
    rows = [('services, edge nodes', '', '%d, %d' % (SERVICES, NODES), ''),
            ('all of them created in', 's', '%.1f' % created, ''),
            ('all of them Ready after', 's', '%.1f' % settled[-1], '< 10'),
            ('  half of them', 's', '%.1f' % settled[len(settled) // 2], ''),
            ('writes of all clients until then', '', '%d' % writes, ''),
            ('pods', '', '%d' % total, ''),
            ('writes while idle', '1/s', '%.1f' % (rest_writes / REST_SECONDS), '0'),
            ('an operator over all that, from its start until idle', 's', '%.1f' % again_seconds, ''),
            ('  RSS with nothing to do, and with them', 'MiB', '%.1f, %.1f' % (empty_kib / 1024, kib / 1024), ''),
            ('  for each object (%s)' % ', '.join('%d %s' % (n, k) for k, n in sorted(counts.items())), 'KiB', '%.1f' % ((kib - empty_kib) / objects), '≤ 8')]
    print('| what | unit | figure | aim |\n|---|---|---:|---|')
    for row in rows:
        print('| %s | %s | %s | %s |' % row)


if __name__ == '__main__':
    main()
