"""IncrementalLearningJobs from `kubectl apply` to a better version that serves: our trainer and
server, workers of the user, requests of a person."""
import json, os, pathlib, random, shutil, signal, struct, sys, tempfile, time, unittest, urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402

SDK = m.ROOT / 'sdk/python/varda_worker.py'
PROGRAMS = [m.ROOT / 'examples/incremental' / name for name in ('centroid_train.py', 'centroid_eval.py', 'centroid_serve.py')]
KIND = 'incrementallearningjob'


class Device(m.Client):
    """Some requests a second, so that the training has a processor."""

    def one(self):
        good = super().one()
        time.sleep(0.02)
        return good


class Jobs(unittest.TestCase):
    """One machine with an edge node: new rows and digits arrive there."""

    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        cls.addClassCleanup(shutil.rmtree, cls.work, True)
        program = cls.work / 'program'
        program.mkdir()
        for file in (SDK, *PROGRAMS):
            shutil.copy(file, program)
        cls.data = cls.work / 'edge0'
        cls.data.mkdir()
        cls.varda = m.Machine(cls.work / 'data', nodes=['cloud=cloud', 'edge0=edge'])
        cls.addClassCleanup(cls.varda.close)
        cls.varda.up('--dataset-root', 'edge0=%s' % cls.data, '--registry', '127.0.0.1:0',
                     *(a for f in PROGRAMS for a in ('--image', '%s:1=python3 %s' % (f.stem.replace('_', '-'), program / f.name))))

    @classmethod
    def apply(cls, *objects):
        cls.varda.kubectl('apply', '-f', '-', input=json.dumps({'apiVersion': 'v1', 'kind': 'List', 'items': list(objects)}))

    def dataset(self, name, path, format):
        self.apply({'apiVersion': 'edgeai.io/v1alpha1', 'kind': 'Dataset', 'metadata': {'name': name},
                    'spec': {'dataUrl': str(path), 'format': format, 'nodeName': 'edge0'}})

    def start(self, name, **spec):
        self.apply({'apiVersion': 'sedna.io/v1alpha1', 'kind': 'IncrementalLearningJob', 'metadata': {'name': name}, 'spec': {'nodeName': 'edge0', **spec}})
        self.addCleanup(lambda: self.varda.kubectl('delete', KIND, name, '--ignore-not-found'))

    def status(self, name):
        return self.varda.get(KIND, name).get('status', {})

    def until(self, name, what, condition):
        try:
            return m.wait_until('%s: %s' % (name, what), lambda: condition(self.status(name)) and self.status(name), timeout=60)
        except m.Failed as e:
            raise m.Failed('%s; status %s' % (e, json.dumps(self.status(name)))) from None

    def condition(self, status, kind):
        return next((c for c in status.get('conditions', []) if c['type'] == kind), {})

    def rounds(self, status):
        return [(r['round'], r['outcome']) for r in status.get('rounds', [])]

    def trainer(self, name):
        return next((p for p in self.varda.pods() if p['metadata']['name'].startswith(name + '-incremental-trainer-')), None)

    # ---- digits with our programs

    def add_images(self, folder, classes, part):
        """Every second image of these classes as idx files."""
        images = (m.DIGITS / 'train-images.idx3-ubyte').read_bytes()
        labels = (m.DIGITS / 'train-labels.idx1-ubyte').read_bytes()[8:]
        count, height, width = struct.unpack('>III', images[4:16])
        size = height * width
        mine = [i for i in range(count) if labels[i] in classes and i % 2 == part]
        folder.mkdir(exist_ok=True)
        for file, content in (('train-images.idx3-ubyte', images[:4] + struct.pack('>III', len(mine), height, width) + b''.join(images[16 + i * size:16 + (i + 1) * size] for i in mine)),
                              ('train-labels.idx1-ubyte', struct.pack('>II', 0x801, len(mine)) + bytes(labels[i] for i in mine))):
            (folder / (file + '.new')).write_bytes(content)
            (folder / (file + '.new')).rename(folder / file)
        return len(mine)

    def start_digits(self, name, port, **evaluation):
        self.varda.varda('push', m.DIGITS / 'models/3', '--name', name + '-0', '--version', '1')
        folder = self.data / name
        self.add_images(folder, range(10), 0)
        for file in m.DIGITS.glob('test-*-ubyte'):
            shutil.copy(file, folder)
        self.dataset(name + '-new', folder / 'train-images.idx3-ubyte', 'idx')
        self.dataset(name + '-eval', folder / 'test-images.idx3-ubyte', 'idx')
        self.start(name, dataset={'name': name + '-new'}, initialModel={'name': name + '-0'},
                   trainSpec={'trainer': {'epochs': 4, 'batchSize': 16, 'optimizer': {'name': 'sgd', 'learningRate': 0.1}}, 'trigger': {'samples': 100}},
                   evalSpec={'dataset': {'name': name + '-eval'}, 'gate': {'minimumGain': 0.005, 'significance': 1, 'forgettingMax': 0.05, 'classDropMax': 0.2}, **evaluation},
                   deploySpec={'model': {'name': name}, 'servingPort': port})

    def test_first_candidate_must_be_better_than_the_initial_eval_model(self):
        self.varda.varda('push', m.DIGITS / 'models/4', '--name', 'laboratory', '--version', '7')
        self.start_digits('modest', 18082, initialEvalModel={'name': 'laboratory'})
        status = self.until('modest', 'the end of a round', lambda s: s.get('rounds'))
        self.assertEqual(self.rounds(status), [(1, 'Refused')], 'the same candidate is better than the initial model')
        self.assertEqual((status['baseline']['name'], status['baseline']['archive']['version'], status['version']), ('laboratory', '7', '1'))

    def test_digits_get_better_with_our_trainer_and_server(self):
        self.start_digits('digits', 18081)
        status = self.until('digits', 'the end of a round', lambda s: s.get('rounds'))
        self.assertEqual(self.rounds(status), [(1, 'Accepted')], status['rounds'])
        version = status['rounds'][0]['version']
        self.until('digits', 'the new version', lambda s: s.get('version') == version and self.condition(s, 'Ready').get('status') == 'True')
        self.assertEqual(self.condition(status, 'Evaluated')['status'], 'True', status['conditions'])
        model = m.wait_until('the version of the Model', lambda: self.varda.get('models.edgeai.io', 'digits'))
        self.assertEqual((model['spec']['version'], model['spec']['sourceJob']), (version, 'IncrementalLearningJob/digits'))
        served = self.varda.get('inferencemodel', 'digits')
        self.assertEqual(served['status']['servingVersion'], version)
        m.wait_until('counts for rollbacks, also if no sample is kept', lambda: 'answers' in self.varda.model('digits')['status']['samples'])
        out = self.varda.varda('il', 'history', 'digits')
        self.assertIn('Accepted', out)
        self.varda.varda('il', 'rollback', 'digits')
        self.until('digits', 'the version before', lambda s: s.get('version') == '1' and s['serving'][0].get('version') == '1')
        metric = 'varda_incremental_job_rolled_back{namespace="default",name="digits"} 1\n'
        m.wait_until('the metric of the rollback', lambda: metric in self.varda.kubectl('get', '--raw', '/metrics'))

    def test_version_that_fails_in_practice_goes_back_by_itself(self):
        self.varda.varda('push', m.DIGITS / 'models/4', '--name', 'unsure-0', '--version', '1')
        folder = self.data / 'unsure'
        self.add_images(folder, range(10), 1)
        for file in m.DIGITS.glob('test-*-ubyte'):
            shutil.copy(file, folder)
        self.dataset('unsure-new', folder / 'train-images.idx3-ubyte', 'idx')
        self.dataset('unsure-eval', folder / 'test-images.idx3-ubyte', 'idx')
        # A version of this trainer is right, and sure of nothing.
        self.start('unsure', dataset={'name': 'unsure-new'}, initialModel={'name': 'unsure-0'},
                   trainSpec={'trainer': {'epochs': 20, 'batchSize': 16, 'labelSmoothing': 0.7, 'optimizer': {'name': 'sgd', 'learningRate': 0.05, 'momentum': 0.9}},
                              'trigger': {'manual': True}},
                   evalSpec={'dataset': {'name': 'unsure-eval'},
                             'gate': {'minimumGain': -0.1, 'significance': 1, 'forgettingMax': 0.1, 'sliceDropMax': 0.1, 'classDropMax': 0.5}},
                   deploySpec={'model': {'name': 'unsure'}, 'servingPort': 18082, 'hardExampleMining': {'name': 'Margin'},
                               'rollback': {'hardShareRise': 0.4, 'answers': 20}})
        url = self.varda.ready('unsure', '1')['status']['url']
        _, pixels = m.read_idx(m.DIGITS / 'test-images.idx3-ubyte')
        load = m.Load(url, 'unsure', [pixels[i * 64:(i + 1) * 64] for i in range(50)], kind=Device)
        m.wait_until('answers of the first version', lambda: self.varda.model('unsure')['status']['samples']['answers'] >= 20)
        self.varda.varda('il', 'train', 'unsure')
        status = self.until('unsure', 'the way back', lambda s: s.get('rounds') and s['rounds'][0]['outcome'] == 'Refused')
        bad = status['rounds'][0]
        self.assertEqual(bad['reason'], 'HardShare', bad)
        self.until('unsure', 'the version before', lambda s: s.get('version') == '1' and s['serving'][0].get('version') == '1')
        load.answered('1')
        answers = load.stop()
        self.assertEqual(m.failures(answers), [])
        self.assertIn(bad['version'], {a[3] for a in answers})

    # ---- the user's workers

    def add_rows(self, path, rows, seed):
        random.seed(seed)
        centers = {'a': (0, 0), 'b': (4, 0), 'c': (0, 4)}
        lines = [] if path.exists() else ['x,y,label']
        lines += ['%.3f,%.3f,%s' % (centers[c][0] + random.gauss(0, 0.5), centers[c][1] + random.gauss(0, 0.5), c) for c in rows]
        with open(path, 'a') as f:
            f.write('\n'.join(lines) + '\n')

    def centroids(self, name):
        """The first model knows the class a, and a wrong place of b."""
        folder = self.work / (name + '-0')
        folder.mkdir()
        (folder / 'model.json').write_text(json.dumps({'a': {'count': 20, 'mean': [0, 0]}, 'b': {'count': 1, 'mean': [0, 3]}}))
        self.varda.varda('push', folder, '--name', name + '-0', '--version', '1', '--format', 'json')

    def users(self, image):
        return {'template': {'spec': {'containers': [{'image': image + ':1'}]}}}

    def start_users(self, name, trigger):
        self.centroids(name)
        rows = self.data / (name + '.csv')
        self.add_rows(rows, 'ab' * 2, 1)
        self.dataset(name, rows, 'csv')
        serve = self.users('centroid-serve')
        serve['template']['spec']['containers'][0]['ports'] = [{'containerPort': 8080}]
        self.start(name, dataset={'name': name, 'trainProb': 0.7}, initialModel={'name': name + '-0'},
                   trainSpec={**self.users('centroid-train'), 'trigger': trigger, 'retry': {'backoffSeconds': 0}},
                   evalSpec=self.users('centroid-eval'),
                   deploySpec={'model': {'name': name, 'hotUpdateEnabled': False}, 'trigger': {'condition': {'metric': 'accuracy_delta', 'operator': '>', 'threshold': 0.1}}, **serve})
        self.until(name, 'the first version', lambda s: self.condition(s, 'Ready').get('status') == 'True')
        return rows

    def test_users_workers_train_evaluate_and_serve(self):
        rows = self.start_users('centroids', {'condition': {'metric': 'num_of_samples', 'operator': '>=', 'threshold': 40}})
        m.wait_until('an answer', lambda: self.answer('centroids', [4, 0]) == {'class': 'a', 'version': '1'})
        self.add_rows(rows, 'abc' * 20, 2)
        status = self.until('centroids', 'the end of a round', lambda s: s.get('rounds'))
        self.assertEqual(self.rounds(status), [(1, 'Accepted')], status['rounds'])
        version = status['rounds'][0]['version']
        self.until('centroids', 'the new version', lambda s: s['serving'][0].get('version') == version and s['serving'][0]['ready'])
        m.wait_until('an answer of the new version', lambda: self.answer('centroids', [4, 0]) == {'class': 'b', 'version': version})
        self.assertEqual(self.answer('centroids', [0, 4])['class'], 'c')

    def answer(self, name, features):
        try:
            return self.ask(name, features)
        except OSError:
            return {}

    def ask(self, name, features):
        pod = next(p for p in self.varda.pods() if p['metadata']['name'].startswith(name + '-incremental-server-'))
        url = 'http://%s:8080/' % pod['status']['podIP']
        return json.loads(urllib.request.urlopen(url, json.dumps(features).encode(), timeout=m.seconds(20)).read())

    def test_person_starts_a_round_and_errors_are_plain(self):
        self.start_users('manual', {'manual': True})
        out = self.varda.varda('il', 'rollback', 'manual', check=False)
        self.assertIn('there is no version before it', getattr(out, 'stderr', out))
        out = self.varda.varda('il', 'train', 'missing', check=False)
        self.assertIn('not found', getattr(out, 'stderr', out))
        self.varda.varda('il', 'train', 'manual')
        status = self.until('manual', 'the end of a round', lambda s: s.get('rounds'))
        self.assertEqual([r['round'] for r in status['rounds']], [1])


if __name__ == '__main__':
    unittest.main()
