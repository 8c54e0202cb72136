"""JointInferenceServices with real processes and a real kubectl: each way to write one, every
change under load, clean removal."""
import json, pathlib, shutil, sys, tempfile, unittest, urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import joint as j  # noqa: E402
import machine as m  # noqa: E402
import prometheus  # noqa: E402

WORKERS = m.ROOT / 'examples/workers/python'


class JointInference(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        (cls.work / 'www').mkdir()
        cls.files = m.FileServer(cls.work / 'www')
        cls.varda = m.Machine(cls.work / 'data', nodes=['cloud=cloud', 'edge0=edge', 'cam=device'])
        cls.varda.up('--image', 'edge-worker:1=%s %s' % (sys.executable, WORKERS / 'edge_worker.py'),
                     '--image', 'edge-worker-cpp:1=%s' % m.EDGE_WORKER,
                     '--image', 'cloud-worker:1=%s %s' % (sys.executable, WORKERS / 'cloud_worker.py'))
        cls.varda.nodes_ready()
        cls.archives = {}
        for v in ('small', 'big', '4'):
            out = cls.work / 'www' / ('%s.tar.gz' % v)
            cls.archives[v] = cls.files.url(out.name), m.pack(cls.varda, v, out)
        cls.images, cls.labels = j.test_split()

    @classmethod
    def tearDownClass(cls):
        cls.varda.close()
        cls.files.stop()
        shutil.rmtree(cls.work, ignore_errors=True)

    def setUp(self):
        for name in ('small', 'big'):
            self.apply(j.model('digits-' + name, *self.archives[name]))

    def tearDown(self):
        self.varda.thaw('cloud')
        self.varda.kubectl('delete', 'jointinferenceservices,inferencemodels,models.sedna.io', '--all', check=False)
        m.wait_until('pods of the test gone', lambda: not self.varda.pods())

    def apply(self, *objects):
        self.varda.kubectl('apply', '-f', '-', input=json.dumps({'apiVersion': 'v1', 'kind': 'List', 'items': list(objects)}))

    def patch(self, kind, name, **spec):
        self.varda.kubectl('patch', kind, name, '--type=merge', '-p', json.dumps({'spec': spec}))

    def service(self, name='digits'):
        return self.varda.get('jointinferenceservice', name)

    def condition(self, kind, status, reason=None, name='digits'):
        def probe():
            found = j.condition(self.varda, name, kind, status)
            return found if found and reason in (None, found['reason']) else None
        return m.wait_until('%s is %s %s' % (kind, status, reason), probe)

    def events(self, name='digits'):
        return {e['reason'] for e in self.varda.get('events')['items'] if e['involvedObject']['name'] == name}

    def pod_uids(self):
        return {p['metadata']['name']: p['metadata']['uid'] for p in self.varda.pods('edgeai.io/job-kind=JointInferenceService')}

    def nothing_left(self, name='digits'):
        def all_deleted():
            for kind in ('pods', 'deployments', 'services', 'inferencemodels'):
                if any(o['metadata']['name'].startswith(name + '-') for o in self.varda.get(kind)['items']):
                    return False
            nodes = self.varda.get('edgenodes')['items']
            return not any(x['key'].startswith('default/' + name) for n in nodes for kind in ('models', 'workers') for x in n['spec'].get(kind, []))
        m.wait_until('nothing of %s left' % name, all_deleted)

    def metrics(self, name='digits'):
        """The service's metrics: {name without prefix: {frozenset of further labels: value}}."""
        found = prometheus.of(prometheus.parse(self.varda.kubectl('get', '--raw', '/metrics')), namespace='default', name=name)
        return {key[len('varda_joint_service_'):]: series for key, series in found.items() if key.startswith('varda_joint_service_')}

    def metrics_of_status(self, name='digits'):
        """The expected metrics, computed from the status."""
        status = self.service(name)['status']
        true = {c['type'] for c in status['conditions'] if c['status'] == 'True'}
        out = {'ready': {frozenset(): float('Ready' in true)}, 'degraded': {frozenset(): float('Degraded' in true)},
               'inferences_total': {frozenset(): status['inferenceNumber']}, 'hard_examples_total': {frozenset(): status['hardExampleNumber']},
               'sent_bytes_total': {frozenset(): status['bytesSent']},
               'workers': {frozenset({('state', state)}): status[state] for state in ('active', 'failed')}}
        for tier in status['tiers']:
            key = frozenset({('tier', tier['name'])})
            for metric, value in (('tier_ready', float(tier['ready'])), ('answered_total', tier['answered']), ('calls_total', tier['called'])):
                out.setdefault(metric, {})[key] = value
            for percentile in ('p50', 'p99'):
                if tier.get(percentile + 'Ms'):
                    out.setdefault('latency_%s_seconds' % percentile, {})[key] = float(tier[percentile + 'Ms'] + 'e-3')
            for reason, count in tier.get('errors', {}).items():
                out.setdefault('errors_total', {})[key | {('reason', reason)}] = count
        return out

    def test_service_of_two_models_fails_no_request_during_changes(self):
        # only a fault takes so long
        self.apply(j.service('digits', 'digits-small', 'digits-big', 'CrossEntropy', 0.7, deadline='30s', samples={'countMax': 5}))
        status = j.ready(self.varda, 'digits')
        self.assertEqual([t['name'] for t in status['tiers']], ['edge', 'cloud'])
        client = j.Client(status['url'], 'digits', self.images)
        client.prepare()
        # Ready means that the cloud answers the first hard request.
        self.assertEqual(j.hard_and_right(client.all_once(), self.labels), j.expected('CrossEntropy', 0.7))
        m.wait_until('a row of it', lambda: self.varda.kubectl('get', 'jis', 'digits', '--no-headers').split()[:4] == ['digits', 'True', 'False', status['url']])
        pods = self.pod_uids()

        load = m.Load(status['url'], 'digits', self.images, kind=j.Client)
        self.addCleanup(load.stop)
        # Policy AlwaysCloud: the cloud gives every answer. The next policy gives the cloud no
        # request.
        self.patch('jis', 'digits', edgeWorker={'hardExampleMining': j.mining('AlwaysCloud')})
        j.wait_for_tier(load, 'cloud')
        m.wait_until('only the cloud answers', lambda: j.hard_and_right(client.all_once(), self.labels)[1] == j.expected('CloudOnly')[1])
        self.patch('jis', 'digits', edgeWorker={'hardExampleMining': j.mining('NeverCloud')})
        m.wait_until('only the edge answers', lambda: j.hard_and_right(client.all_once(), self.labels)[1] == j.expected('EdgeOnly')[1])
        # Another model at the edge, then another one in the cloud.
        self.apply(j.model('digits-small', *self.archives['4']))
        version = self.archives['4'][1][:12]
        m.wait_until('the next version at the edge', lambda: self.service()['status']['endpoints'][0]['version'] == version)
        self.patch('jis', 'digits', edgeWorker={'hardExampleMining': j.mining('CrossEntropy', 0.7)})
        self.apply(j.model('digits-big', *self.archives['4']))
        m.wait_until('the next version in the cloud', lambda: self.service()['status']['tiers'][1].get('version') == version)
        self.assertEqual(self.pod_uids(), pods)

        # The cloud disappears and comes back.
        self.patch('jis', 'digits', edgeWorker={'hardExampleMining': j.mining('AlwaysCloud')})
        j.wait_for_tier(load, 'cloud')
        self.varda.freeze('cloud')
        self.condition('Degraded', 'True', 'BreakerOpen')
        self.assertIn('Degraded', m.wait_until('an event', lambda: {'Degraded'} & self.events()))
        self.assertIsNotNone(j.condition(self.varda, 'digits', 'Ready', 'True'))
        self.varda.thaw('cloud')
        self.condition('Degraded', 'False')
        j.wait_for_tier(load, 'cloud')
        samples = load.stop()
        self.assertEqual(m.failures(samples), [])
        sent = len(samples) + len(client.samples)
        counted = m.wait_until('%d counted' % sent, lambda: (lambda s: s if s['inferenceNumber'] >= sent else None)(self.service()['status']))
        self.assertEqual(counted['inferenceNumber'], sent)
        self.assertEqual(self.pod_uids(), pods)
        kept = m.wait_until('five kept samples', lambda: (lambda s: s if s.get('pending') == 5 else None)(self.service()['status'].get('samples', {})))
        self.assertEqual((kept['version'], kept.get('reason', '')), (version, ''))
        self.assertGreater(kept['hard'], 0)

        m.wait_until('metrics as the status', lambda: self.metrics() == self.metrics_of_status())
        values = self.metrics()
        self.assertEqual(values['inferences_total'], {frozenset(): sent})
        self.assertGreater(sum(values['errors_total'].values()), 0)
        self.assertEqual(set(values['latency_p99_seconds']), {frozenset({('tier', tier)}) for tier in ('edge', 'cloud')})
        prometheus.parse(m.DIRECT.open(status['url'] + '/metrics', timeout=m.seconds(60)).read().decode())

        self.varda.kubectl('delete', 'jis', 'digits')
        self.nothing_left()
        m.wait_until('no metrics of it', lambda: not self.metrics())

    def test_three_tiers_include_a_device_and_an_existing_model(self):
        self.apply(m.inference_model('shared', 'cloud', [('1', *self.archives['big'])], '1'))
        tiers = [{'name': 'device', 'model': {'name': 'digits-small'}, 'layer': 'device', 'policy': j.mining('CrossEntropy', 0.7)},
                 {'name': 'edge', 'model': {'name': 'digits-big'}, 'nodeName': 'edge0', 'policy': j.mining('NeverCloud')},
                 {'name': 'cloud', 'model': {'name': 'shared', 'kind': 'InferenceModel'}, 'layer': 'cloud'}]
        self.apply({'apiVersion': 'sedna.io/v1alpha1', 'kind': 'JointInferenceService', 'metadata': {'name': 'digits'}, 'spec': {'deadline': '30s', 'tiers': tiers}})
        status = j.ready(self.varda, 'digits')
        self.assertEqual([(t['name'], t['layer'], t.get('node')) for t in status['tiers'][:2]], [('device', 'device', 'cam'), ('edge', 'edge', 'edge0')])
        j.knows_its_tiers(status['url'], 'digits')
        client = j.Client(status['url'], 'digits', self.images)
        client.prepare()
        self.assertEqual(j.hard_and_right(client.all_once(), self.labels), j.expected('CrossEntropy', 0.7))
        self.assertEqual({a.tier for a in j.answers(client.samples)}, {'device', 'edge'})
        # The cloud now gets the requests that the edge finds hard.
        tiers[1]['policy'] = j.mining('AlwaysCloud')
        self.patch('jis', 'digits', tiers=tiers)
        m.wait_until('the cloud answers what is hard', lambda: {a.tier for a in j.answers(client.all_once())} == {'device', 'cloud'})
        self.varda.kubectl('delete', 'jis', 'digits')
        self.nothing_left()
        self.varda.ready('shared', '1')

    def test_user_workers_reach_each_other_and_counts_are_reported(self):
        def worker(image):
            return {'containers': [{'name': 'worker', 'image': image, 'imagePullPolicy': 'IfNotPresent', 'ports': [{'containerPort': m.free_port()}]}]}
        spec = {'edgeWorker': {'model': {'name': 'digits-small'}, 'nodeName': 'edge0', 'hardExampleMining': j.mining('CrossEntropy', 0.5),
                               'workerSpec': worker('edge-worker:1')},
                'cloudWorker': {'model': {'name': 'digits-big'}, 'workerSpec': worker('cloud-worker:1')}}
        edge = spec['edgeWorker']['workerSpec']['containers'][0]
        edge['env'] = [{'name': 'LISTEN_PORT', 'value': str(edge['ports'][0]['containerPort'])}]
        self.apply({'apiVersion': 'sedna.io/v1alpha1', 'kind': 'JointInferenceService', 'metadata': {'name': 'bright'}, 'spec': spec})
        status = j.ready(self.varda, 'bright')

        answers = []

        def request(level):
            with m.DIRECT.open(urllib.request.Request(status['url'] + '/infer', data=bytes([level] * 64)), timeout=m.seconds(60)) as response:
                answers.append(json.loads(response.read()))
            return answers[-1]
        self.assertEqual(m.wait_until('an answer', lambda: request(250))['tier'], 'edge')
        self.assertEqual(m.wait_until('an answer of the cloud', lambda: (lambda a: a if a['tier'] == 'cloud' else None)(request(130)))['label'], 'bright')
        m.wait_until('counts', lambda: self.service('bright')['status']['hardExampleNumber'] >= 1)
        self.assertGreater(self.service('bright')['status']['inferenceNumber'], self.service('bright')['status']['hardExampleNumber'])
        # The C++ worker replaces the Python worker. Its counts are added.
        with self.subTest('the worker in C++'):
            if not m.EDGE_WORKER.exists():
                self.skipTest('%s is not built' % m.EDGE_WORKER)
            counted = m.wait_until('both counted', lambda: (lambda s: s if s['inferenceNumber'] == len(answers) else None)(self.service('bright')['status']))
            edge['image'] = 'edge-worker-cpp:1'
            self.patch('jis', 'bright', edgeWorker={'workerSpec': spec['edgeWorker']['workerSpec']})
            m.wait_until('the worker in C++', lambda: 'parameters' not in j.get(self.service('bright')['status']['url'], '/status'))
            status = j.ready(self.varda, 'bright')
            self.assertEqual(m.wait_until('an answer of the cloud', lambda: (lambda a: a if a['tier'] == 'cloud' else None)(request(130)))['label'], 'bright')
            sums = m.wait_until('its counts', lambda: (lambda s: s if s['inferenceNumber'] == len(answers) else None)(self.service('bright')['status']))
            self.assertGreater(sums['hardExampleNumber'], counted['hardExampleNumber'])
        # Varda's servers replace the workers.
        self.patch('jis', 'bright', edgeWorker={'workerSpec': None}, cloudWorker={'workerSpec': None})
        status = j.ready(self.varda, 'bright')
        m.wait_until('our server', lambda: j.get(self.service('bright')['status']['url'], '/v2/models/bright')['name'] == 'bright')
        self.varda.kubectl('delete', 'jis', 'bright')
        self.nothing_left('bright')

    def test_each_problem_is_reported_until_fixed(self):
        self.apply(j.service('digits', 'nothing', 'digits-big', 'CrossEntropy', 0.7, node='edge9'))
        self.assertIn('nothing', self.condition('Ready', 'False', 'ModelNotFound')['message'])
        m.wait_until('an event', lambda: 'ModelNotFound' in self.events())
        self.patch('jis', 'digits', edgeWorker={'model': {'name': 'digits-small'}})
        self.assertIn('edge9', self.condition('Ready', 'False', 'NodeNotFound')['message'])
        self.patch('jis', 'digits', edgeWorker={'nodeName': 'edge0'})
        j.ready(self.varda, 'digits')
        refused = self.varda.kubectl('patch', 'jis', 'digits', '--type=merge', '-p', '{"spec": {"edgeWorker": {"hardExampleMining": {"name": "Guess"}}}}', check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn('hardExampleMining', refused.stderr)


if __name__ == '__main__':
    unittest.main()
