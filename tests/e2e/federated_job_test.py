"""FederatedLearningJobs from `kubectl apply` to a new version of a Model: our programs and users'
programs on several nodes, a group that grows, killed workers, two jobs at once, wrong inputs."""
import json, os, pathlib, random, shutil, signal, struct, sys, tempfile, unittest, urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402

SDK = m.ROOT / 'sdk/python/varda_worker.py'
PROGRAMS = [m.ROOT / 'examples/federated' / name for name in ('line_aggregate.py', 'line_train.py')]
EDGES = ['edge0', 'edge1', 'edge2']
KIND = 'federatedlearningjob'


class Jobs(unittest.TestCase):
    """One machine with three edge nodes, and points of one line on each."""

    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        cls.addClassCleanup(shutil.rmtree, cls.work, True)
        program = cls.work / 'program'
        program.mkdir()
        for file in (SDK, *PROGRAMS):
            shutil.copy(file, program)
        random.seed(1)
        roots = []
        for number, node in enumerate(EDGES):
            (cls.work / node).mkdir()
            # Each node sees another part of the line y = 2 x + 1.
            rows = [(x, 2 * x + 1 + random.gauss(0, 0.01)) for x in (random.uniform(number - 1.5, number - 0.5) for _ in range(50))]
            (cls.work / node / 'points.csv').write_text('x,y\n' + ''.join('%.4f,%.4f\n' % row for row in rows))
            roots += ['--dataset-root', '%s=%s' % (node, cls.work / node)]
        cls.deal_digits()
        cls.varda = m.Machine(cls.work / 'data', nodes=['cloud=cloud'] + [n + '=edge' for n in EDGES])
        cls.addClassCleanup(cls.varda.close)
        cls.varda.up(*roots, '--registry', '127.0.0.1:0', *(a for f in PROGRAMS for a in ('--image', '%s:1=python3 %s' % (f.stem, program / f.name))))
        cls.apply(*({'apiVersion': 'sedna.io/v1alpha1', 'kind': 'Dataset', 'metadata': {'name': 'points-' + node, 'labels': {'task': 'line'}},
                     'spec': {'url': str(cls.work / node / 'points.csv'), 'format': 'csv', 'nodeName': node}} for node in EDGES))

        cls.varda.varda('push', m.DIGITS / 'models/3', '--name', 'digits', '--version', '3')
        cls.apply(*({'apiVersion': 'edgeai.io/v1alpha1', 'kind': 'Dataset', 'metadata': {'name': 'digits-' + node},
                     'spec': {'dataUrl': str(cls.work / node / 'digits/train-images.idx3-ubyte'), 'format': 'idx', 'nodeName': node}} for node in EDGES))

    @classmethod
    def deal_digits(cls):
        """Each node gets the digits of three or four classes, and a few of each class."""
        images = (m.DIGITS / 'train-images.idx3-ubyte').read_bytes()
        labels = (m.DIGITS / 'train-labels.idx1-ubyte').read_bytes()[8:]
        count, height, width = struct.unpack('>III', images[4:16])
        size = height * width
        for number, node in enumerate(EDGES):
            mine = [i for i in range(count) if labels[i] % len(EDGES) == number or i % 10 == number]
            (cls.work / node / 'digits').mkdir()
            (cls.work / node / 'digits/train-images.idx3-ubyte').write_bytes(
                images[:4] + struct.pack('>III', len(mine), height, width) + b''.join(images[16 + i * size:16 + (i + 1) * size] for i in mine))
            (cls.work / node / 'digits/train-labels.idx1-ubyte').write_bytes(struct.pack('>II', 0x801, len(mine)) + bytes(labels[i] for i in mine))

    @classmethod
    def apply(cls, *objects):
        cls.varda.kubectl('apply', '-f', '-', input=json.dumps({'apiVersion': 'v1', 'kind': 'List', 'items': list(objects)}))

    def aggregator(self, model, rounds=5):
        return {'model': {'name': model}, 'nodeName': 'cloud', 'workerSpec': {'containers': [
            {'image': 'line_aggregate:1', 'env': [{'name': 'exit_round', 'value': str(rounds)}], 'ports': [{'containerPort': 7363}]}]}}

    def trainer(self, env=(), **place):
        return {**place, 'workerSpec': {'containers': [{'image': 'line_train:1', 'env': [{'name': k, 'value': v} for k, v in env]}]}}

    def start(self, name, aggregator, trainers, **more):
        self.apply({'apiVersion': 'sedna.io/v1alpha1', 'kind': 'FederatedLearningJob', 'metadata': {'name': name},
                    'spec': {'aggregationWorker': aggregator, 'trainingWorkers': trainers, **more}})
        self.addCleanup(lambda: self.varda.kubectl('delete', KIND, name, '--ignore-not-found'))

    def status(self, name):
        return self.varda.get(KIND, name).get('status', {})

    def until(self, name, what, condition):
        try:
            return m.wait_until('%s: %s' % (name, what), lambda: condition(self.status(name)) and self.status(name))
        except m.Failed as e:
            raise m.Failed('%s; status %s' % (e, json.dumps(self.status(name)))) from None

    def complete(self, name):
        status = self.until(name, 'the end', lambda s: s.get('phase') in ('Complete', 'Failed'))
        self.assertEqual(status['phase'], 'Complete', status)
        return status

    def line(self, status):
        return json.loads(urllib.request.urlopen(status['produced']['url'], timeout=m.seconds(60)).read())

    def condition(self, status, kind):
        return next((c for c in status.get('conditions', []) if c['type'] == kind), {})

    def pods(self, name):
        return [p for p in self.varda.pods() if p['metadata']['name'].startswith(name + '-federated-')]

    def pid(self, pod):
        return int(self.varda.get('pod', pod)['status']['containerStatuses'][0]['containerID'].split('://')[1].split('-')[0])

    def files(self, name):
        return [f for node in ['cloud'] + EDGES for f in (self.work / 'data/nodes' / node / 'data/workers/default').glob(name + '-*')]

    def test_users_workers_on_two_nodes_make_a_version_of_the_model(self):
        self.start('line', self.aggregator('line', 30), [
            self.trainer([('learning_rate', '0.3'), ('batch_size', '0.3')], nodeName=node, dataset={'name': 'points-' + node}) for node in EDGES[:2]])
        status = self.complete('line')
        slope, offset = self.line(status)
        self.assertAlmostEqual(slope, 2, delta=0.2)
        self.assertAlmostEqual(offset, 1, delta=0.2)
        self.assertEqual((status['round'], status['rounds'], status['summary']['round']), (30, 30, '30/30'))
        self.assertEqual({p['node'] for p in status['participants']}, {'edge0', 'edge1'})
        model = self.varda.get('models.edgeai.io', 'line')
        self.assertEqual((model['spec']['sourceJob'], model['spec']['sha256']), ('FederatedLearningJob/line', status['produced']['sha256']))
        self.assertEqual(model['spec']['metadata']['participants'], '2')
        self.assertIn('loss', [x['key'] for x in model['status']['metrics']])
        self.varda.kubectl('delete', KIND, 'line')
        m.wait_until('the files of the job are gone', lambda: not self.files('line'))
        m.wait_until('the pods are gone', lambda: not self.pods('line'))

    def test_no_worker_spec_at_all_trains_the_digits_and_a_server_follows(self):
        self.apply({'apiVersion': 'ai.kubeedge.io/v1alpha1', 'kind': 'InferenceModel', 'metadata': {'name': 'digits'}, 'spec': {
            'modelName': 'digits', 'deployToLayer': 'edge', 'nodeName': 'edge0', 'frameworkType': 'onnx', 'modelRef': {'name': 'digits'}}})
        self.addCleanup(lambda: self.varda.kubectl('delete', 'inferencemodel', 'digits'))
        m.wait_until('version 3 serves', lambda: self.varda.get('inferencemodel', 'digits').get('status', {}).get('servingVersion') == '3')
        self.start('digits', {'model': {'name': 'digits'}}, [{'dataset': {'name': 'digits-' + node}} for node in EDGES],
                   federated={'rounds': 10, 'minimumClients': 3, 'seed': 1, 'trainer': {'batchSize': 32, 'optimizer': {'name': 'sgd', 'learningRate': 0.2}}})
        status = self.complete('digits')
        self.assertEqual((status['round'], status['summary']['participants']), (10, '3/3'), status)
        self.assertEqual([p['state'] for p in status['participants']], ['Ended'] * 3, status['participants'])
        self.assertEqual(len(status['history']), 10)
        self.assertGreater(status['bytesUp'], 0, status)
        self.assertIn('round', urllib.request.urlopen(status['metricsUrl'], timeout=m.seconds(60)).read().decode())
        model = self.varda.get('models.edgeai.io', 'digits')
        self.assertEqual(model['spec']['version'], status['produced']['version'])
        self.assertEqual(len(model['spec']['metadata']['updatesSha256']), 64)
        m.wait_until('the result serves', lambda: self.varda.get('inferencemodel', 'digits')['status'].get('servingVersion') == status['produced']['version'])
        out = self.varda.varda('predict', 'digits', '--images', m.DIGITS / 'test-images.idx3-ubyte', '--labels', m.DIGITS / 'test-labels.idx1-ubyte')
        accuracy = float(out.split('accuracy ')[1].split()[0])
        self.assertGreater(accuracy, 0.92, 'version 3 has 0.90; ' + out[-200:])

    def test_secure_aggregation_trains_the_digits_and_refuses_what_does_not_fit(self):
        federated = {'rounds': 3, 'seed': 1, 'secureAggregation': {}, 'trainer': {'batchSize': 32, 'optimizer': {'name': 'sgd', 'learningRate': 0.2}}}
        self.start('secret', {'model': {'name': 'digits'}}, [{'dataset': {'name': 'digits-' + node}} for node in EDGES], federated=federated)
        status = self.complete('secret')
        self.assertEqual((status['round'], status['summary']['participants']), (3, '3/3'), status)
        accuracy = [float(x['metrics']['accuracy']) for x in status['history']]
        self.assertGreater(accuracy[-1], 0.9, status['history'])
        result = self.varda.kubectl('apply', '-f', '-', check=False, input=json.dumps({
            'apiVersion': 'sedna.io/v1alpha1', 'kind': 'FederatedLearningJob', 'metadata': {'name': 'wrong'},
            'spec': {'aggregationWorker': {'model': {'name': 'x'}}, 'trainingWorkers': [{'nodeName': 'edge0'}], 'federated': {**federated, 'mode': 'async'}}}))
        self.assertIn('needs the mode sync', result.stderr)
        krum = {**federated, 'aggregator': {'name': 'Krum'}}
        self.start('krum', {'model': {'name': 'digits'}}, [{'dataset': {'name': 'digits-' + node}} for node in EDGES], federated=krum)
        status = self.until('krum', 'the reason', lambda s: 'SettingsInvalid' in json.dumps(s.get('conditions', [])))
        self.assertIn('the rule Krum reads single updates', json.dumps(status))

    def test_node_that_joins_the_group_joins_the_job(self):
        for node in EDGES[:2]:
            self.varda.kubectl('label', 'node', node, 'hall=3', '--overwrite')
        self.addCleanup(lambda: [self.varda.kubectl('label', 'node', node, 'hall-') for node in EDGES])
        self.start('grows', self.aggregator('grows', 100000), [
            self.trainer(selector={'matchLabels': {'hall': '3'}}, dataset={'selector': {'matchLabels': {'task': 'line'}}})])
        self.until('grows', 'two uploads', lambda s: s.get('round', 0) > 0 and [p['state'] for p in s['participants']] == ['Uploaded'] * 2)
        self.varda.kubectl('label', 'node', 'edge2', 'hall=3')
        self.until('grows', 'the third', lambda s: len([p for p in s['participants'] if p['state'] == 'Uploaded']) == 3)
        self.varda.kubectl('label', 'node', 'edge0', 'hall-')
        self.until('grows', 'without edge0', lambda s: {p['node'] for p in s['participants']} == {'edge1', 'edge2'})
        m.wait_until('its pod ends', lambda: not [p for p in self.pods('grows') if p['spec'].get('nodeName') == 'edge0'])

    def test_killed_trainer_comes_back_and_two_jobs_do_not_meet(self):
        for name in ('one', 'two'):
            self.start(name, self.aggregator(name, 100000), [self.trainer(dataset={'name': 'points-edge0'}), self.trainer(dataset={'name': 'points-edge1'})])
        one, two = (self.until(name, 'uploads', lambda s: [p['state'] for p in s.get('participants', [])] == ['Uploaded'] * 2) for name in ('one', 'two'))
        self.assertFalse({p['worker'] for p in one['participants']} & {p['worker'] for p in two['participants']})
        pod = one['participants'][0]['worker']
        before = self.pid(pod)
        os.kill(before, signal.SIGKILL)
        m.wait_until('another process', lambda: self.pid(pod) != before)
        round = self.status('one')['round']
        self.until('one', 'further rounds', lambda s: s['round'] > round and [p['state'] for p in s['participants']] == ['Uploaded'] * 2)
        self.varda.kubectl('delete', KIND, 'one')
        m.wait_until('the files of the job are gone', lambda: not self.files('one'))
        round = self.status('two')['round']
        self.until('two', 'further rounds', lambda s: s['round'] > round)

    def test_wrong_inputs_have_a_reason(self):
        self.start('absent', self.aggregator('absent'), [self.trainer(dataset={'name': 'none'})])
        status = self.until('absent', 'a reason', lambda s: self.condition(s, 'Participants').get('status') == 'False')
        self.assertEqual(self.condition(status, 'Participants')['reason'], 'DatasetNotFound')
        self.start('nowhere', {**self.aggregator('nowhere'), 'nodeName': 'moon'}, [self.trainer(nodeName='edge0')])
        self.until('nowhere', 'a reason', lambda s: self.condition(s, 'Training').get('reason') == 'NodeNotFound')
        result = self.varda.kubectl('apply', '-f', '-', check=False, input=json.dumps({
            'apiVersion': 'sedna.io/v1alpha1', 'kind': 'FederatedLearningJob', 'metadata': {'name': 'wrong'},
            'spec': {'aggregationWorker': {'model': {'name': 'x'}}, 'trainingWorkers': [{}], 'federated': {'rounds': 0}}}))
        self.assertNotEqual(result.returncode, 0)
        for text in ('spec.federated.rounds', 'nodeName, selector or dataset says where the worker runs'):
            self.assertIn(text, result.stderr)


if __name__ == '__main__':
    unittest.main()
