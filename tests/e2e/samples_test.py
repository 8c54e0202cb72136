"""The sample objects of the documents that describe these kinds, applied as written, on `varda up`.

Their absolute paths (/code/data, /model/frozen.pb) exist only for the processes of `varda up`, by
tests/support/other_root.sh.
"""
import hashlib, json, pathlib, shutil, sys, tempfile, unittest, urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402

API = m.ROOT / 'src/api/testdata'

# Writes the environment and the model's first bytes, and stays.
WORKER = r'''
import json, os, pathlib, sys, time
path = os.environ.get('MODEL_PATH', '')
given = {name: os.environ.get(name) for name in ['MODEL_PATH', 'MODEL_URL', 'HEM_NAME', 'nms_threshold', 'WORKER_ROLE', 'NODE_NAME']}
given['model'] = pathlib.Path(path).read_text() if path else None
try:
    open(path, 'r+').close()
    given['writable'] = True
except OSError:
    given['writable'] = False
given['volume'] = os.access('/data', os.W_OK)
pathlib.Path(sys.argv[1], given['WORKER_ROLE'] + '-' + given['NODE_NAME'] + '.json').write_text(json.dumps(given))
while True:
    time.sleep(3600)
'''

MODEL = 'apiVersion: sedna.io/v1alpha1\nkind: Model\nmetadata: {name: %s}\nspec: {url: %s, format: pb}\n'


class Machine(m.Machine):
    """`varda up` sees the folders of `extra` at the root."""

    def __init__(self, data_dir, nodes, extra):
        super().__init__(data_dir, nodes)
        self.extra = extra

    def run(self, command, **kw):
        if 'up' in command:
            command = [m.ROOT / 'tests/support/other_root.sh', self.extra, *command]
        return super().run(command, **kw)


class Samples(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        self.extra = self.work / 'extra'
        for name in ['code/data', 'model']:
            (self.extra / name).mkdir(parents=True)
        (self.work / 'out').mkdir()

    def up(self, nodes, *flags):
        self.varda = Machine(self.work / 'machine', nodes, self.extra)
        self.addCleanup(self.close)
        self.varda.up(*flags)

    def close(self):
        if not self._outcome.success:
            self.varda.show_logs()
        self.varda.close()

    def apply(self, text):
        self.varda.kubectl('apply', '-f', '-', input=text)

    def status_of(self, *args):
        return self.varda.get(*args).get('status', {})

    def given(self, worker):
        return m.wait_until('the worker %s' % worker, lambda: json.loads((self.work / 'out' / (worker + '.json')).read_text()))

    def workers(self, *names):
        (self.work / 'worker.py').write_text(WORKER)
        return [x for name in names for x in ['--image', '%s=%s %s %s' % (name, sys.executable, self.work / 'worker.py', self.work / 'out')]]

    def test_dataset_is_counted_as_a_folder_then_as_a_file(self):
        for name, lines in {'a.txt': 3, 'b.txt': 4}.items():
            (self.extra / 'code/data' / name).write_text('one line\n' * lines)
        self.up([], '--dataset-root', 'edge0=/code/data')
        # the first document of the file is the sample
        self.apply((API / 'edgeai/dataset.yaml').read_text().split('\n---\n')[0])

        def counted(number):
            m.wait_until('%d samples' % number, lambda: self.status_of('dataset.edgeai.io', 'dataset-examp').get('numberOfSamples') == number)
        counted(7)
        with (self.extra / 'code/data/b.txt').open('a') as more:
            more.write('one line\n')
        counted(8)
        (self.extra / 'code/data/c.txt').write_text('one line\n')
        counted(9)
        self.varda.kubectl('patch', 'dataset.edgeai.io', 'dataset-examp', '--type=merge', '-p', '{"spec": {"dataUrl": "/code/data/a.txt"}}')
        counted(3)

    def test_model_is_registered(self):
        self.up([])
        self.apply((API / 'edgeai/model.yaml').read_text().split('\n---\n')[0])
        self.varda.kubectl('wait', 'model.edgeai.io/model-examp', '--for=condition=Ready', '--timeout=60s')
        self.assertIn('model-examp', self.varda.varda('models', 'ls', '--where', 'format=pb', '-o', 'name'))

    @unittest.skipUnless(m.engine_built('opencv'), 'the build has no OpenCV engine (libopencv-dnn-dev)')
    def test_model_that_is_a_path_serves_the_bytes_of_its_first_use(self):
        graphs = m.ROOT / 'plugins/opencv/testdata/faces'
        frozen = self.extra / 'model/frozen.pb'
        shutil.copy(graphs / '3/frozen.pb', frozen)
        self.up(['edge0'], '--allow-files-below', '/model')
        self.apply((API / 'edgeai/model.yaml').read_text().split('\n---\n')[0])
        self.apply('apiVersion: ai.kubeedge.io/v1alpha1\nkind: InferenceModel\nmetadata: {name: faces}\n'
                   'spec: {modelName: faces, deployToLayer: edge, nodeName: edge0, modelRef: {name: model-examp}}\n')
        self.varda.ready('faces')

        def digest(version):
            return hashlib.sha256((graphs / version / 'frozen.pb').read_bytes()).hexdigest()

        def pinned():
            return self.status_of('model.edgeai.io', 'model-examp')['pinned']['sha256']
        self.assertEqual(pinned(), digest('3'))
        given, expected = ([float(word) for word in line.split()] for line in (graphs / '3/example.txt').read_text().splitlines())
        body = {'inputs': [{'name': 'input', 'datatype': 'FP32', 'shape': [1, 12, 12, 1], 'data': given}]}
        request = urllib.request.Request(self.status_of('inferencemodel', 'faces')['url'] + '/v2/models/faces/infer', json.dumps(body).encode())
        with m.DIRECT.open(request, timeout=m.seconds(60)) as reply:
            found = json.load(reply)['outputs'][0]['data']
        for left, right in zip(found, expected, strict=True):
            self.assertAlmostEqual(left, right, places=5)
        # Other bytes at the path count only after a change of spec.version.
        shutil.copy(graphs / '4/frozen.pb', frozen)
        self.varda.kubectl('label', 'model.edgeai.io', 'model-examp', 'seen=again')
        self.assertEqual(pinned(), digest('3'))
        self.varda.kubectl('patch', 'model.edgeai.io', 'model-examp', '--type=merge', '-p', '{"spec": {"version": "4"}}')
        self.varda.ready('faces', '4')
        self.assertEqual(pinned(), digest('4'))

    def test_joint_inference_workers_read_their_models(self):
        for name in ['small', 'big']:
            (self.extra / 'model' / (name + '.pb')).write_text('weights of ' + name)
        images = self.workers('edge-inference-worker:latest', 'cloud-inference-worker:latest')
        self.up(['edge0', 'solar-corona-cloud=cloud'], '--allow-files-below', '/model', *images)
        for name in ['small', 'big']:
            self.apply(MODEL % (name + '-model', '/model/%s.pb' % name))
        self.apply((API / 'sedna/worker_spec.yaml').read_text())
        edge, cloud = self.given('edge-edge0'), self.given('cloud-solar-corona-cloud')
        self.assertEqual((edge['model'], edge['MODEL_PATH'], edge['MODEL_URL']), ('weights of small', '/model/small.pb', '/model/small.pb'))
        self.assertEqual((edge['HEM_NAME'], edge['nms_threshold'], edge['volume'], edge['writable']), ('IBT', '0.6', True, False))
        self.assertEqual((cloud['model'], cloud['MODEL_PATH']), ('weights of big', '/model/big.pb'))

    def test_path_that_the_node_does_not_allow_is_not_mounted(self):
        (self.extra / 'model/small.pb').write_text('weights of small')
        self.up(['edge0', 'solar-corona-cloud=cloud'], *self.workers('edge-inference-worker:latest', 'cloud-inference-worker:latest'))
        for name in ['small', 'big']:
            self.apply(MODEL % (name + '-model', '/model/%s.pb' % name))
        self.apply((API / 'sedna/worker_spec_template.yaml').read_text().replace('nodeName: cloud', 'nodeName: solar-corona-cloud'))
        self.assertIsNone(self.given('edge-edge0')['MODEL_PATH'])

        def refused():
            for c in self.status_of('jointinferenceservice', 'example').get('conditions', []):
                if (c['type'], c['reason']) == ('EdgeReady', 'ModelNotMounted'):
                    return c['message']
            return None
        self.assertIn('--allow-files-below', m.wait_until('ModelNotMounted', refused))

    def test_workers_run_on_the_nodes_of_a_group(self):
        for name in ['small', 'big']:
            (self.extra / 'model' / (name + '.pb')).write_text('weights of ' + name)
        images = self.workers('edge-inference-worker:latest', 'cloud-inference-worker:latest')
        self.up(['line1', 'line2', 'yard', 'solar-corona-cloud=cloud'], '--allow-files-below', '/model', *images)
        for name in ['small', 'big']:
            self.apply(MODEL % (name + '-model', '/model/%s.pb' % name))
        for node in ['line1', 'line2']:
            self.varda.kubectl('label', 'node', node, 'group=lines')
        service = self.varda.kubectl('create', '--dry-run=client', '-o', 'json', '-f', '-', input=(API / 'sedna/worker_spec.yaml').read_text())
        service = json.loads(service)
        edge = service['spec']['edgeWorker']
        del edge['nodeName']
        edge['selector'] = {'matchLabels': {'group': 'lines'}}
        edge['template'] = {'spec': edge.pop('workerSpec')}
        edge['replicas'] = 1
        self.apply(json.dumps(service))
        self.varda.kubectl('wait', 'jointinferenceservice/example', '--for=condition=EdgeReady', '--timeout=120s')
        self.assertEqual(len(self.varda.get('pods', '-l', 'edgeai.io/worker=edge')['items']), 1)
        del edge['replicas']
        self.apply(json.dumps(service))
        for node in ['line1', 'line2']:
            self.assertEqual(self.given('edge-' + node)['model'], 'weights of small')
        self.varda.kubectl('label', 'node', 'yard', 'group=lines')
        self.assertEqual(self.given('edge-yard')['model'], 'weights of small')


if __name__ == '__main__':
    unittest.main(verbosity=2)
