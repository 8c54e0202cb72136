"""`varda operator` processes with `varda apiserver`: leadership, takeover, health and metrics."""
import collections, hashlib, json, os, pathlib, re, shutil, signal, subprocess, sys, tempfile, unittest, urllib.error

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402
import prometheus  # noqa: E402

CONTROLLER = {'controller'}
QUEUE = {'controller', 'name'}
# Metric families and their labels, as used by dashboards and alerts for controller-runtime and
# client-go.
METRICS = {
    'controller_runtime_reconcile_total': {'controller', 'result'},
    'controller_runtime_reconcile_errors_total': CONTROLLER,
    'controller_runtime_terminal_reconcile_errors_total': CONTROLLER,
    'controller_runtime_reconcile_panics_total': CONTROLLER,
    'controller_runtime_reconcile_time_seconds': CONTROLLER,
    'controller_runtime_max_concurrent_reconciles': CONTROLLER,
    'controller_runtime_active_workers': CONTROLLER,
    'workqueue_depth': QUEUE,
    'workqueue_adds_total': QUEUE,
    'workqueue_queue_duration_seconds': QUEUE,
    'workqueue_work_duration_seconds': QUEUE,
    'workqueue_retries_total': QUEUE,
    'workqueue_unfinished_work_seconds': QUEUE,
    'workqueue_longest_running_processor_seconds': QUEUE,
    'rest_client_requests_total': {'code', 'host', 'method'},
    'rest_client_request_duration_seconds': {'host', 'verb'},
    'leader_election_master_status': {'name'},
}
SHORT = ['--leader-election-lease-duration', '8s', '--leader-election-renew-deadline', '6s', '--leader-election-retry-period', '200ms']
LONG = ['--leader-election-lease-duration', '600s', '--leader-election-renew-deadline', '500s', '--leader-election-retry-period', '200ms']


class Process:
    """A daemon that logs JSON lines to a file."""

    def __init__(self, test, log, *args):
        self.log = log
        with open(log, 'ab') as out:
            self.process = subprocess.Popen([m.VARDA, *map(str, args), '--log-format', 'json'], stdout=subprocess.DEVNULL, stderr=out)
        test.addCleanup(self.kill)

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()

    def lines(self):
        whole = self.log.read_text().rpartition('\n')[0]
        return [json.loads(line) for line in whole.splitlines()]

    def logged(self, message):
        return [line for line in self.lines() if line['message'] == message]

    def request(self, path):
        """(status, text) from the administration port. The log contains the address of the port."""
        try:
            with m.DIRECT.open('http://%s%s' % (self.logged('serving health and metrics')[0]['address'], path), timeout=m.seconds(60)) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def leads(self):
        return 'leader_election_master_status{name="varda-operator"} 1\n' in self.request('/metrics')[1]

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        return self.process.wait(timeout=m.seconds(180))


class Operator(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        self.cluster = m.Machine(self.work / 'data')
        self.cluster.dir.mkdir()
        self.api = Process(self, self.work / 'api.log', 'apiserver', '--data-dir', self.cluster.dir, '--listen', '127.0.0.1:0')
        m.wait_until('the API server', lambda: self.cluster.get('namespaces'))
        self.cluster.kubectl('apply', *(a for crd in sorted(m.ROOT.glob('deploy/crds/*_*.yaml')) for a in ('-f', str(crd))))

    def start(self, name, *flags):
        return Process(self, self.work / (name + '.log'), 'operator', *m.LOOPBACK, '--kubeconfig', self.cluster.kubeconfig, '--admin', '127.0.0.1:0',
                       *flags)

    def make(self, name, namespace='default'):
        """Creates an edge model for a node that does not exist. The status then reports that, which
        shows a working controller."""
        model = m.inference_model(name, 'edge', [('1', 'https://files.test/1.tar.gz', '0' * 64)], '1', node='nowhere')
        model['metadata']['namespace'] = namespace
        self.cluster.kubectl('apply', '-f', '-', input=json.dumps(model))

    def observed(self, name, namespace='default'):
        return 'conditions' in self.cluster.get('-n', namespace, 'inferencemodel', name).get('status', {})

    def lease(self):
        return self.cluster.get('-n', 'kube-system', 'lease', 'varda-operator')['spec']

    def test_node_reads_the_digest_of_a_path(self):
        file = self.work / 'files/digits.onnx'
        file.parent.mkdir()
        shutil.copy(m.DIGITS / 'models/4/model.onnx', file)
        apply = lambda *objects: self.cluster.kubectl('apply', '-f', '-', input=json.dumps({'apiVersion': 'v1', 'kind': 'List', 'items': list(objects)}))
        model = lambda **spec: {'apiVersion': 'edgeai.io/v1alpha1', 'kind': 'Model', 'metadata': {'name': 'digits'},
                                'spec': {'modelUrl': str(file), 'nodeName': 'edge0', **spec}}
        server = {'modelName': 'digits', 'deployToLayer': 'edge', 'nodeName': 'edge0', 'modelRef': {'name': 'digits'}}
        apply({'apiVersion': 'v1', 'kind': 'Node', 'metadata': {'name': 'edge0', 'labels': {'node-role.kubernetes.io/edge': ''}}},
              model(), {'apiVersion': 'ai.kubeedge.io/v1alpha1', 'kind': 'InferenceModel', 'metadata': {'name': 'digits'}, 'spec': server})
        self.start('one')
        agent = Process(self, self.work / 'agent.log', 'agent', '--node', 'edge0', '--data-dir', self.work / 'agent',
                        '--kubeconfig', self.cluster.kubeconfig)
        pinned = lambda: self.cluster.get('model', 'digits').get('status', {}).get('pinned', {}).get('sha256')
        condition = lambda: [c for c in self.cluster.get('model', 'digits').get('status', {}).get('conditions', []) if c['type'] == 'Pinned']
        m.wait_until('the refusal', lambda: condition() and 'node edge0 cannot read it' in condition()[0]['message'])
        self.assertIn('--allow-files-below', condition()[0]['message'])
        agent.end()
        Process(self, self.work / 'agent.log', 'agent', '--node', 'edge0', '--data-dir', self.work / 'agent',
                '--kubeconfig', self.cluster.kubeconfig, '--allow-files-below', file.parent)
        first = hashlib.sha256(file.read_bytes()).hexdigest()
        m.wait_until('the pin', lambda: pinned() == first)
        installed = lambda: {(v.get('sha256'), v['state']) for one in self.cluster.get('edgenode', 'edge0').get('status', {}).get('models', [])
                             for v in one.get('versions', [])}
        m.wait_until('the version is on the node', lambda: (first, 'Ready') in installed())
        m.wait_until('the request is gone', lambda: not self.cluster.get('edgenode', 'edge0')['spec'].get('files'))
        shutil.copy(m.DIGITS / 'models/3/model.onnx', file)
        second = hashlib.sha256(file.read_bytes()).hexdigest()
        apply(model(version='2'))
        m.wait_until('the pin of the new version', lambda: pinned() == second)
        m.wait_until('the new version is on the node', lambda: (second, 'Ready') in installed())

    def test_killed_leader_is_replaced(self):
        both = [self.start('one', *SHORT), self.start('two', *SHORT)]
        m.wait_until('one leads', lambda: sum(o.leads() for o in both) == 1)
        m.wait_until('the other waits', lambda: sum(bool(o.logged('another process leads, waiting for the lease')) for o in both) == 1)
        leader, other = both if both[0].leads() else reversed(both)
        for o in both:
            self.assertEqual([o.request(p)[0] for p in ('/healthz', '/readyz', '/nonsense')], [200, 200, 404])
        self.make('a')
        m.wait_until('it works', lambda: self.observed('a'))
        self.assertFalse(other.logged('leading'))
        first = self.lease()
        leader.end(signal.SIGKILL)
        m.wait_until('the other leads', other.leads)
        self.make('b')
        m.wait_until('it works too', lambda: self.observed('b'))
        then = self.lease()
        self.assertNotEqual(then['holderIdentity'], first['holderIdentity'])
        self.assertEqual(then['leaseTransitions'], first['leaseTransitions'] + 1)

    def test_stopped_leader_releases_the_lease(self):
        leader = self.start('one', *LONG)
        m.wait_until('it leads', leader.leads)
        other = self.start('two', *LONG)
        m.wait_until('the other waits', lambda: other.logged('another process leads, waiting for the lease'))
        self.assertEqual(leader.end(), 0)
        m.wait_until('the other leads, long before the lease has run out', other.leads)
        self.assertEqual(other.end(), 0)
        self.assertEqual(self.lease()['holderIdentity'], '')
        events = self.cluster.get('-n', 'kube-system', 'events')['items']
        self.assertEqual(sum(e['reason'] == 'LeaderElection' and e['involvedObject']['name'] == 'varda-operator' for e in events), 2)

    def test_leader_without_a_server_ends_with_an_error(self):
        leader = self.start('one', *SHORT)
        m.wait_until('it leads', leader.leads)
        self.api.process.send_signal(signal.SIGSTOP)  # connections stay open without answers
        self.assertNotEqual(leader.process.wait(timeout=m.seconds(180)), 0)
        self.assertIn('leadership of kube-system/varda-operator was lost', leader.log.read_text())
        self.api.process.send_signal(signal.SIGCONT)
        again = self.start('again', *SHORT)
        m.wait_until('the next one leads', again.leads)

    def test_metrics_have_the_names_and_labels_of_controller_runtime(self):
        operator = self.start('one', '--log-level', 'debug')
        m.wait_until('it leads', operator.leads)
        self.make('a')
        m.wait_until('it works', lambda: self.observed('a'))
        prometheus.parse(operator.request('/metrics')[1])
        labels = collections.defaultdict(set)
        for name, inner in re.findall(r'^(\w+)\{(.*)\} \S+$', operator.request('/metrics')[1], re.M):
            family = name if name in METRICS else re.sub('_(bucket|sum|count)$', '', name)
            labels[family] |= set(re.findall(r'(\w+)="', inner)) - {'le'}
        self.assertEqual({name: labels[name] for name in METRICS}, METRICS)
        results = set(re.findall('controller_runtime_reconcile_total{controller="inferencemodels",result="(\\w+)"}',
                                 operator.request('/metrics')[1]))
        self.assertEqual(results, {'success', 'error', 'requeue', 'requeue_after'})

        of_runs = [line for line in operator.lines() if 'reconcileID' in line]
        self.assertTrue(any(line['controller'] == 'inferencemodels' and line['namespace'] == 'default' and line['name'] == 'a'
                            for line in of_runs))
        runs = collections.Counter(line['reconcileID'] for line in of_runs if line['message'] == 'reconciled')
        self.assertEqual(set(runs.values()), {1}, 'each run has another identifier')

    def test_operator_limited_to_namespaces_ignores_others(self):
        for namespace in 'abc':
            self.cluster.kubectl('create', 'namespace', namespace)
        operator = self.start('one', '--namespace', 'a', '--namespace', 'b')
        m.wait_until('it leads', operator.leads)
        for namespace in 'cab':
            self.make('model', namespace)
        m.wait_until('both are served', lambda: self.observed('model', 'a') and self.observed('model', 'b'))
        self.make('later', 'a')
        m.wait_until('it continues', lambda: self.observed('later', 'a'))
        self.assertFalse(self.observed('model', 'c'))

    def test_flags_that_allow_two_leaders_are_refused(self):
        for flags, why in [(['--leader-election-renew-deadline', '15s'], 'must be shorter than --leader-election-lease-duration'),
                           (['--leader-election-retry-period', '9s'], 'must be shorter than --leader-election-renew-deadline'),
                           (['--leader-election-retry-period', '0s'], 'must be shorter than --leader-election-renew-deadline'),
                           (['--leader-election-lease-duration', '10500ms'], 'whole seconds')]:
            done = self.cluster.run([m.VARDA, 'operator', *m.LOOPBACK, '--kubeconfig', self.cluster.kubeconfig, '--admin', '127.0.0.1:0', *flags],
                                    check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(why, done.stderr)


if __name__ == '__main__':
    unittest.main()
