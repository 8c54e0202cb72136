"""TrainingModels from `kubectl apply` to a new version of a Model: the built-in trainer and a user's
program, suspended, killed, deleted in mid-run, and with wrong inputs."""
import hashlib, json, os, pathlib, random, shutil, signal, sys, tempfile, unittest, urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402
from s3_server import S3Server  # noqa: E402

SDK = m.ROOT / 'sdk/python/varda_worker.py'
CENTROID = m.ROOT / 'examples/training/nearest_centroid.py'
TRAINER = {'task': 'classification', 'epochs': 20, 'batchSize': 32, 'seed': 1, 'optimizer': {'name': 'sgd', 'learningRate': 0.2, 'momentum': 0.9}}


class Trainings(unittest.TestCase):
    """One machine, with the digits and a table on edge0."""

    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        cls.addClassCleanup(shutil.rmtree, cls.work, True)
        data, cls.program = cls.work / 'datasets', cls.work / 'program'
        program = cls.program
        data.mkdir()
        program.mkdir()
        for file in m.DIGITS.glob('*-ubyte'):
            shutil.copy(file, data)
        for file in (SDK, CENTROID):
            shutil.copy(file, program)
        random.seed(1)
        rows = [(random.gauss(3 * c, 1), random.gauss(-3 * c, 1), 'red' if c else 'blue') for c in (i % 2 for i in range(400))]
        (data / 'points.csv').write_text('x,y,colour\n' + ''.join('%.4f,%.4f,%s\n' % row for row in rows))
        cls.data = data
        cls.varda = m.Machine(cls.work / 'data', nodes=['cloud=cloud', 'edge0=edge'])
        cls.addClassCleanup(cls.varda.close)
        cls.varda.up('--dataset-root', 'edge0=%s' % data, '--registry', '127.0.0.1:0', '--dataset-root', 'cloud=%s' % data,
                     '--image', 'centroid:1=python3 %s' % (program / CENTROID.name), '--image', 'python:3=python3')
        cls.varda.varda('push', m.DIGITS / 'models/3', '--name', 'digits', '--version', '3')
        cls.apply(cls.dataset('digits-train', 'train-images.idx3-ubyte', 'idx'), cls.dataset('digits-test', 'test-images.idx3-ubyte', 'idx'),
                  cls.dataset('points', 'points.csv', 'csv'))

    @classmethod
    def dataset(cls, name, file, format, node='edge0'):
        return {'apiVersion': 'edgeai.io/v1alpha1', 'kind': 'Dataset', 'metadata': {'name': name},
                'spec': {'dataUrl': str(cls.data / file), 'format': format, 'nodeName': node}}

    @classmethod
    def apply(cls, *objects):
        cls.varda.kubectl('apply', '-f', '-', input=json.dumps({'apiVersion': 'v1', 'kind': 'List', 'items': list(objects)}))

    def train(self, name, spec):
        self.apply({'apiVersion': 'ai.kubeedge.io/v1alpha1', 'kind': 'TrainingModel', 'metadata': {'name': name},
                    'spec': {'deployToLayer': 'edge', 'nodeName': 'edge0', **spec}})
        self.addCleanup(lambda: self.varda.kubectl('delete', 'trainingmodel', name, '--ignore-not-found'))

    def digits(self, model, epochs=20, **more):
        return {'modelName': model, 'initialModel': {'name': 'digits'}, 'dataset': {'name': 'digits-train'}, 'evaluation': {'dataset': {'name': 'digits-test'}},
                'trainer': {**TRAINER, 'epochs': epochs}, 'checkpoint': {'every': '1s'}, **more}

    def status(self, name):
        return self.varda.get('trainingmodel', name).get('status', {})

    def until(self, name, what, condition):
        try:
            return m.wait_until('%s: %s' % (name, what), lambda: condition(self.status(name)) and self.status(name))
        except m.Failed as e:
            raise m.Failed('%s; status %s' % (e, json.dumps(self.status(name)))) from None

    def complete(self, name):
        status = self.until(name, 'the end', lambda s: s.get('phase') in ('Complete', 'Failed'))
        self.assertEqual(status['phase'], 'Complete', status)
        return status

    def condition(self, status, kind):
        return next((c for c in status.get('conditions', []) if c['type'] == kind), {})

    def metrics(self, model):
        return {x['key']: float(x['value']) for x in self.varda.get('model', model)['status']['metrics']}

    def work_of(self, name):
        return list((self.work / 'data/nodes/edge0/data/workers/default').glob(name + '*'))

    def trainer(self, name):
        status = self.varda.get('pod', self.status(name)['pod'])['status']['containerStatuses'][0]
        return int(status['containerID'].split('://')[1].split('-')[0])

    def test_built_in_trainer_makes_a_better_version(self):
        self.train('better', self.digits('digits-better', output={'version': '5'}))
        status = self.complete('better')
        self.assertGreaterEqual(self.metrics('digits-better')['accuracy'], 0.95)
        model = self.varda.get('model', 'digits-better')['spec']
        self.assertEqual((model['version'], model['sourceJob'], model['parents']), ('5', 'TrainingModel/better', ['digits']))
        self.assertEqual((model['sha256'], model['modelUrl']), (status['produced']['sha256'], status['produced']['url']))
        self.assertEqual(status['progress']['epoch'], 20)
        self.assertTrue(status['history'])
        self.varda.kubectl('delete', 'trainingmodel', 'better')
        m.wait_until('the files of the run are gone', lambda: not self.work_of('better'))

    def test_run_without_a_node_is_on_the_cloud_node(self):
        self.apply(self.dataset('cloud-points', 'points.csv', 'csv', node='cloud'))
        self.train('anywhere', {'modelName': 'anywhere', 'deployToLayer': 'cloud', 'nodeName': None, 'dataset': {'name': 'cloud-points'}, 'image': 'centroid:1',
                                'output': {'version': '1'}})
        self.assertEqual(self.complete('anywhere')['node'], 'cloud')
        self.assertEqual(json.loads(self.varda.kubectl('get', 'jobs', '-o', 'json'))['items'], [])

    def test_users_program_trains_and_its_model_has_metrics(self):
        self.train('points', {'modelName': 'points', 'dataset': {'name': 'points'}, 'image': 'centroid:1', 'output': {'version': '1'}})
        status = self.complete('points')
        self.assertGreater(self.metrics('points')['accuracy'], 0.9)
        model = json.loads(urllib.request.urlopen(status['produced']['url'], timeout=m.seconds(60)).read())
        self.assertEqual(sorted(model), ['blue', 'red'])

    def test_result_goes_to_a_bucket_and_serves_from_there(self):
        s3 = S3Server(bucket='results', secret='a-very-secret-key')
        self.addCleanup(s3.close)
        self.varda.kubectl('label', 'namespace', 'default', 'edgeai.io/edge-secrets=allow', '--overwrite')
        blobs = lambda: sorted(x.name for x in (self.work / 'data').glob('**/blobs/*'))
        before = blobs()
        self.train('away', self.digits('digits-away', epochs=2, output={
            'version': '5', 'registry': False, 'url': 's3://results/line-7', 'credentials': {'secretName': 'results-key'}}))
        self.until('away', 'the missing Secret', lambda s: 'no Secret default/results-key' in self.condition(s, 'Running').get('message', ''))
        self.varda.kubectl('create', 'secret', 'generic', 'results-key', '--from-literal=AWS_ACCESS_KEY_ID=' + s3.key,
                           '--from-literal=AWS_SECRET_ACCESS_KEY=wrong', '--from-literal=AWS_ENDPOINT_URL=' + s3.url)
        self.addCleanup(lambda: self.varda.kubectl('delete', 'secret', 'results-key'))
        self.until('away', 'the refusal', lambda s: 'SignatureDoesNotMatch' in self.condition(s, 'Running').get('message', ''))
        self.varda.kubectl('patch', 'secret', 'results-key', '-p', json.dumps({'stringData': {'AWS_SECRET_ACCESS_KEY': s3.secret}}))
        status = self.complete('away')
        digest = status['produced']['sha256']
        with s3.lock:
            objects = dict(s3.objects)
        self.assertEqual([k for k in objects if '/report-' not in k], ['line-7/%s/model-5' % digest])
        self.assertEqual(hashlib.sha256(objects['line-7/%s/model-5' % digest]).hexdigest(), digest)
        self.assertEqual(blobs(), before, 'nothing went to the registry')
        model = self.varda.get('model', 'digits-away')['spec']
        self.assertEqual((model['modelUrl'], model['sha256'], model['credentialName']),
                         ('s3://results/line-7/%s/model-5' % digest, digest, 'results-key'))
        self.apply({'apiVersion': 'ai.kubeedge.io/v1alpha1', 'kind': 'InferenceModel', 'metadata': {'name': 'away'},
                    'spec': {'modelName': 'away', 'deployToLayer': 'edge', 'nodeName': 'edge0', 'modelRef': {'name': 'digits-away'}}})
        self.addCleanup(lambda: self.varda.kubectl('delete', 'inferencemodel', 'away'))
        self.varda.ready('away', '5')
        logs = ''.join(x.read_text(errors='replace') for x in (self.work / 'data').glob('**/*.log'))
        everything = logs + self.varda.kubectl('get', 'trainingmodels,models,edgenodes,pods,events', '-o', 'yaml')
        self.assertNotIn(s3.secret, everything)

    def test_scripts_are_the_program_of_a_plain_image(self):
        archives = self.work / 'archives'
        archives.mkdir()
        self.varda.varda('pack', self.program, '--framework', '', '-o', archives / 'code-1.tar.gz')
        files = m.FileServer(archives)
        self.addCleanup(files.stop)
        digest = hashlib.sha256((archives / 'code-1.tar.gz').read_bytes()).hexdigest()
        code = {'version': '1', 'downloadURL': 'http://127.0.0.1:%d/code-1.tar.gz' % files.port, 'sha256sum': digest}
        spec = {'modelName': 'scripted', 'dataset': {'name': 'points'}, 'output': {'version': '1'},
                'workerSpec': {'containers': [{'name': 'trainer', 'image': 'python:3', 'args': ['/code/' + CENTROID.name]}]}}
        self.train('scripted', {**spec, 'scripts': {'manifest': [{**code, 'sha256sum': '0' * 64}], 'targetVersion': '1'}})
        status = self.until('scripted', 'the wrong digest', lambda s: self.condition(s, 'Running').get('reason') == 'DigestMismatch')
        self.assertEqual(status['phase'], 'Fetching')
        self.varda.kubectl('patch', 'trainingmodel', 'scripted', '--type=merge', '-p', json.dumps({'spec': {'scripts': {'manifest': [code]}}}))
        self.complete('scripted')
        self.assertGreater(self.metrics('scripted')['accuracy'], 0.9)
        installed = self.work / 'data/nodes/edge0/data/models/default/scripted.training-scripts'
        m.wait_until('the scripts are gone', lambda: not installed.exists())

    def test_run_of_the_cloud_layer_needs_a_node_of_that_layer(self):
        self.apply(self.dataset('points-cloud', 'points.csv', 'csv', 'cloud'))
        spec = {'modelName': 'clouded', 'dataset': {'name': 'points-cloud'}, 'image': 'centroid:1', 'deployToLayer': 'cloud'}
        self.train('clouded', {**spec, 'nodeName': 'edge0'})
        self.until('clouded', 'the wrong layer', lambda s: self.condition(s, 'Running').get('reason') == 'NodeInOtherLayer')
        self.varda.kubectl('patch', 'trainingmodel', 'clouded', '--type=merge', '-p', '{"spec":{"nodeName":"cloud"}}')
        self.assertEqual(self.complete('clouded')['node'], 'cloud')

    def test_killed_and_suspended_run_gives_the_bytes_of_an_undisturbed_one(self):
        self.train('calm', self.digits('digits-calm', epochs=800))
        calm = self.complete('calm')
        self.train('restless', self.digits('digits-restless', epochs=800))
        self.until('restless', 'progress', lambda s: s.get('progress', {}).get('epoch', 0) >= 2)
        os.kill(self.trainer('restless'), signal.SIGKILL)
        self.until('restless', 'the second attempt', lambda s: s.get('attempts', 0) >= 2 and s.get('phase') == 'Training')
        self.varda.kubectl('patch', 'trainingmodel', 'restless', '--type=merge', '-p', '{"spec":{"suspend":true}}')
        status = self.until('restless', 'Suspended or its end', lambda s: s.get('phase') in ('Suspended', 'Complete'))
        if status['phase'] == 'Suspended':
            m.wait_until('no pod', lambda: not [p for p in self.varda.pods() if p['metadata']['name'].startswith('restless')])
            self.assertTrue(self.work_of('restless'))
            self.varda.kubectl('patch', 'trainingmodel', 'restless', '--type=merge', '-p', '{"spec":{"suspend":false}}')
        self.assertEqual(self.complete('restless')['produced']['sha256'], calm['produced']['sha256'])

    def test_ended_run_is_not_repeated_when_its_model_or_base_changes(self):
        self.train('once', self.digits('digits-once', epochs=1))
        status = self.complete('once')
        self.varda.kubectl('delete', 'model', 'digits-once')
        self.varda.kubectl('annotate', 'trainingmodel', 'once', 'touched=1')
        pods = [p['metadata']['uid'] for p in self.varda.pods() if p['metadata']['name'].startswith('once')]
        self.assertEqual(self.status('once')['completionTime'], status['completionTime'])
        self.assertEqual(pods, [p['metadata']['uid'] for p in self.varda.pods() if p['metadata']['name'].startswith('once')])

    def test_run_deleted_while_it_trains_leaves_nothing(self):
        self.train('short', self.digits('digits-short', epochs=100000))
        self.until('short', 'progress', lambda s: s.get('progress', {}).get('epoch', 0) >= 1)
        pid = self.trainer('short')
        self.varda.kubectl('delete', 'trainingmodel', 'short')
        m.wait_until('the trainer ended', lambda: not os.path.exists('/proc/%d' % pid))
        m.wait_until('the files of the run are gone', lambda: not self.work_of('short'))
        self.assertNotEqual(self.varda.kubectl('get', 'model', 'digits-short', check=False).returncode, 0)

    def test_missing_dataset_and_wrong_settings_have_a_reason(self):
        self.train('nowhere', {**self.digits('x'), 'dataset': {'name': 'absent'}})
        status = self.until('nowhere', 'a reason', lambda s: 'absent' in json.dumps(s.get('conditions', [])))
        self.assertEqual(status['phase'], 'Pending')
        self.train('table', {**self.digits('x'), 'dataset': {'name': 'points'}, 'evaluation': {'holdOut': 0.2}})
        status = self.until('table', 'the end', lambda s: s.get('phase') in ('Complete', 'Failed'))
        failed = self.condition(status, 'Failed')
        self.assertEqual((status['phase'], failed['status']), ('Failed', 'True'))
        self.assertIn('points.csv', failed['message'])
        refused = self.varda.kubectl('apply', '-f', '-', check=False, input=json.dumps(
            {'apiVersion': 'ai.kubeedge.io/v1alpha1', 'kind': 'TrainingModel', 'metadata': {'name': 'both'},
             'spec': {**self.digits('x'), 'deployToLayer': 'edge', 'nodeName': 'edge0', 'image': 'centroid:1'}}))
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn('image', refused.stderr)


if __name__ == '__main__':
    unittest.main()
