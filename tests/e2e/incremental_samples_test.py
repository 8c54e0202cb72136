"""The way of a sample in an IncrementalLearningJob: kept by the server, labelled by the bigger model of
the cloud, by a command, or by a file in a folder, moved into the job's Dataset, and trained."""
import json, pathlib, shutil, struct, sys, tempfile, time, unittest, zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402

KIND = 'incrementallearningjob'
PICTURES = 'preprocess: {image: {channels: grey, layout: NHW, resize: {width: 8, height: 8}}}\n'
SHOWN, UNCLEAR, DROPPED = 90, 4, 3
SAMPLES = 75  # start a round


def png(pixels):
    def chunk(kind, body):
        return struct.pack('>I', len(body)) + kind + body + struct.pack('>I', zlib.crc32(kind + body))
    rows = b''.join(b'\0' + pixels[y * 8:y * 8 + 8] for y in range(8))
    return (b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 8, 8, 8, 0, 0, 0, 0)) +
            chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b''))


class Pictures(m.Client):
    def prepare(self):
        self.bodies = [png(pixels) for pixels in self.images]

    def headers(self):
        return {'Content-Type': 'image/png'}


class WayOfASample(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        cls.addClassCleanup(shutil.rmtree, cls.work, True)
        cls.data = cls.work / 'edge0'
        (cls.data / 'new').mkdir(parents=True)
        for file in m.DIGITS.glob('*-ubyte'):
            shutil.copy(file, cls.data)
        cls.varda = m.Machine(cls.work / 'data', nodes=['cloud=cloud', 'edge0=edge'])
        cls.addClassCleanup(cls.varda.close)
        cls.varda.up('--dataset-root', 'edge0=%s' % cls.data, '--registry', '127.0.0.1:0')
        for source, name in (('3', 'digits-0'), ('big', 'digits-cloud')):
            folder = cls.work / name
            shutil.copytree(m.DIGITS / 'models' / source, folder)
            (folder / 'model.yaml').write_text(PICTURES)
            cls.varda.varda('push', folder, '--name', name, '--version', '1')

    def tearDown(self):
        if any(e for _, e in getattr(getattr(self, '_outcome', None), 'errors', []) or []):
            self.varda.show_logs()

    def apply(self, *objects):
        self.varda.kubectl('apply', '-f', '-', input=json.dumps({'apiVersion': 'v1', 'kind': 'List', 'items': list(objects)}))

    def patch(self, deploy):
        self.varda.kubectl('patch', KIND, 'digits', '--type=merge', '-p', json.dumps({'spec': {'deploySpec': deploy}}))

    def labels(self):
        return next(iter(self.varda.get('edgenode', 'edge0')['status'].get('samples', [])), {})

    def reported(self, **least):
        try:
            return m.wait_until('samples %s' % least, lambda: all(self.labels().get(k, 0) >= v for k, v in least.items()) and self.labels(), timeout=60)
        except m.Failed as e:
            raise m.Failed('%s; report %s; status %s' % (e, self.labels(), json.dumps(self.status()))) from None

    def status(self):
        return self.varda.get(KIND, 'digits').get('status', {})

    def until(self, what, condition):
        try:
            return m.wait_until(what, lambda: condition(self.status()) and self.status(), timeout=60)
        except m.Failed as e:
            raise m.Failed('%s; status %s' % (e, json.dumps(self.status()))) from None

    def condition(self, kind):
        return next((c for c in self.status().get('conditions', []) if c['type'] == kind), {})

    def listed(self):
        return json.loads(self.varda.varda('samples', 'ls', 'digits', '--data-dir', self.work / 'data', '-o', 'json'))['samples']

    def kept(self, url):
        with m.DIRECT.open(url + '/v2/models/digits/samples', timeout=m.seconds(60)) as answer:
            return json.load(answer)['kept']

    def job(self):
        return {'apiVersion': 'sedna.io/v1alpha1', 'kind': 'IncrementalLearningJob', 'metadata': {'name': 'digits'}, 'spec': {
            'nodeName': 'edge0', 'dataset': {'name': 'digits-new'}, 'initialModel': {'name': 'digits-0'},
            'trainSpec': {'trainer': {'epochs': 4, 'batchSize': 16, 'optimizer': {'name': 'sgd', 'learningRate': 0.1}, 'continual': {'replay': {'samples': 1000}}},
                          'replay': {'name': 'digits-old'},
                          'trigger': {'condition': {'metric': 'num_of_samples', 'operator': '>=', 'threshold': SAMPLES}, 'cooldownSeconds': 600}},
            'evalSpec': {'dataset': {'name': 'digits-eval'}, 'gate': {'minimumGain': 0, 'significance': 1, 'forgettingMax': 0.1, 'sliceDropMax': 0.1, 'classDropMax': 0.5}},
            # every request is hard
            'deploySpec': {'model': {'name': 'digits'}, 'hardExampleMining': {'name': 'AlwaysCloud'}, 'samples': {'countMax': 1000}}}}

    def test_labels_of_model_command_and_folder_reach_the_training(self):
        files = {'digits-new': (self.data / 'new', 'imagefolder'), 'digits-eval': (self.data / 'test-images.idx3-ubyte', 'idx'),
                 'digits-old': (self.data / 'train-images.idx3-ubyte', 'idx')}
        self.apply(self.job(), *({'apiVersion': 'edgeai.io/v1alpha1', 'kind': 'Dataset', 'metadata': {'name': name},
                                  'spec': {'dataUrl': 'file://%s' % path, 'format': format, 'nodeName': 'edge0'}} for name, (path, format) in files.items()))
        url = self.varda.ready('digits', '1')['status']['url']
        _, pixels = m.read_idx(m.DIGITS / 'train-images.idx3-ubyte')
        _, classes = m.read_idx(m.DIGITS / 'train-labels.idx1-ubyte')
        images = [pixels[i * 64:(i + 1) * 64] for i in range(SHOWN + DROPPED)]
        half = [bytes((a + b) // 2 for a, b in zip(images[i], images[i + UNCLEAR])) for i in range(UNCLEAR)]  # two digits, one over the other
        flat = [bytes([16 * i] * 64) for i in range(1, UNCLEAR + 1)]
        camera = Pictures(url, 'digits', images[:SHOWN] + half + flat)
        camera.prepare()
        for number in range(1, len(camera.bodies) + 1):
            self.assertTrue(camera.one(), m.failures(camera.samples))
            # a disk that is slower than the camera would cost samples
            m.wait_until('the disk has picture %d' % number, lambda: self.kept(url) == number, every=0.002)
        self.reported(pending=len(camera.bodies))
        self.assertEqual(self.labels().get('asked', 0), 0, 'the job names no bigger model')

        # the bigger model is missing, which the job reports
        self.assertEqual(self.condition('Labels').get('reason'), 'Moved', self.status()['conditions'])
        self.patch({'pseudoLabels': {'model': {'name': 'digits-cloud'}, 'minimum': 0.9}})
        m.wait_until('the missing model is reported', lambda: self.condition('Labels').get('reason') == 'ModelNotFound')

        # a person labels: by a command, and by files in a folder of the spool
        first = self.listed()[0]['id']
        self.varda.varda('samples', 'label', 'digits', first, str(classes[0]), '--data-dir', self.work / 'data')
        spool = self.work / 'data/nodes/edge0/data/samples/default/digits'
        for i in range(SHOWN, SHOWN + DROPPED):
            place = spool / 'label' / str(classes[i])
            place.mkdir(parents=True, exist_ok=True)
            (place / ('mine-%d.png' % i)).write_bytes(png(images[i]))
        m.wait_until("the command's label is in the Dataset", lambda: (self.data / 'new' / str(classes[0]) / (first + '.png')).exists())

        # the bigger model arrives, and labels the others
        load = m.Load(url, 'digits', images[:SHOWN], kind=Slow)
        self.apply({'apiVersion': 'ai.kubeedge.io/v1alpha1', 'kind': 'InferenceModel', 'metadata': {'name': 'digits-cloud'},
                    'spec': {'modelName': 'digits-cloud', 'deployToLayer': 'cloud', 'frameworkType': 'onnx', 'modelRef': {'name': 'digits-cloud'}}})
        status = self.until('the end of a round', lambda s: s.get('rounds'))
        self.assertEqual([(r['round'], r['outcome']) for r in status['rounds']], [(1, 'Accepted')], status['rounds'])
        self.assertGreaterEqual(status['rounds'][0]['samples'], SAMPLES)
        version = status['rounds'][0]['version']
        load.answered(version)
        answers = load.stop()
        self.assertEqual(m.failures(answers), [])
        self.assertEqual(answers[-1][3], version)

        report = self.reported(unsure=1)
        self.assertEqual(report['state'], 'Ready', report)
        self.assertEqual(report['moved'], report['movedPseudo'] + 1 + DROPPED)
        self.assertEqual(report['asked'], report['movedPseudo'] + report['unsure'])
        self.assertEqual(self.condition('Labels').get('reason'), 'Moved', self.status()['conditions'])
        unsure = [s for s in self.listed() if any(a['tier'] == 'digits-cloud' for a in s.get('answers', []))]
        self.assertGreaterEqual(len(unsure), 1, 'people see the pictures that the bigger model is not sure of')
        # labels of the bigger model are right, and every sample is in the Dataset once
        truth = {png(image): str(label) for image, label in zip(images, classes)}
        found = [(truth.get(file.read_bytes()), file.parent.name) for file in (self.data / 'new').glob('*/*.png')]
        self.assertEqual([(a, b) for a, b in found if a not in (None, b)], [])
        m.wait_until('the Dataset has all samples', lambda: self.status()['samples']['total'] >= self.labels()['moved'])


class Slow(Pictures):
    """Some requests a second: each of them is kept."""

    def one(self):
        good = super().one()
        time.sleep(0.1)
        return good


if __name__ == '__main__':
    unittest.main()
