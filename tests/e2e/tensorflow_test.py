"""A frozen TensorFlow graph on an edge node, without TensorFlow and without Python, with real
processes.

plugins/opencv/testdata/make_models.py made the graphs and computed their answers.
"""
import json, pathlib, shutil, sys, tempfile, unittest, urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / 'tests/support'))
import machine as m  # noqa: E402

GRAPHS = ROOT / 'plugins/opencv/testdata/faces'

# As users of such nodes write it; only host and digests of the archives are filled in.
SAMPLE = '''
apiVersion: ai.kubeedge.io/v1alpha1
kind: InferenceModel
metadata:
  name: facialexpression
spec:
  modelName: facialexpression
  deployToLayer: edge
  frameworkType: tensorflow
  nodeSelector:
    kubernetes.io/hostname: precision-5820
  nodeName: precision-5820
  manifest:
  - version: '3'
    downloadURL: %s
    sha256sum: %s
  - version: '4'
    downloadURL: %s
    sha256sum: %s
  targetVersion: '4'
  servingPort: 8080
  replicas: 1
'''


@unittest.skipUnless(m.engine_built('opencv'), 'the build has no OpenCV engine (libopencv-dnn-dev)')
class FrozenGraph(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        (cls.work / 'www').mkdir()
        cls.files = m.FileServer(cls.work / 'www')
        cls.varda = m.Machine(cls.work / 'data', nodes=['cloud=cloud', 'precision-5820=edge'])
        cls.varda.up()
        cls.varda.nodes_ready()
        cls.archives = []
        for version in ('3', '4'):
            out = cls.work / 'www' / ('facialexpression-%s.tar.gz' % version)
            printed = cls.varda.varda('pack', GRAPHS / version, '--framework', 'tensorflow', '-o', out)
            cls.archives += [cls.files.url(out.name), printed.split('sha256sum: ')[1].split('}')[0].strip()]

    @classmethod
    def tearDownClass(cls):
        cls.varda.close()
        cls.files.stop()
        shutil.rmtree(cls.work, ignore_errors=True)

    def tearDown(self):
        if any(e for _, e in getattr(getattr(self, '_outcome', None), 'errors', []) or []):
            self.varda.show_logs()
        self.varda.kubectl('delete', 'inferencemodels', '--all', check=False)
        m.wait_until('pods of the test gone', lambda: not self.varda.pods(), 180)

    def answer(self, version):
        """The model's answer to the example of a version, and the expected answer."""
        given, expected = ([float(word) for word in line.split()]
                           for line in (GRAPHS / version / 'example.txt').read_text().splitlines())
        url = self.varda.model('facialexpression')['status']['url'] + '/v2/models/facialexpression/infer'
        body = {'inputs': [{'name': 'input', 'datatype': 'FP32', 'shape': [1, 12, 12, 1], 'data': given}]}
        request = urllib.request.Request(url, json.dumps(body).encode(), {'Content-Type': 'application/json'})
        with urllib.request.urlopen(request, timeout=m.seconds(60)) as response:
            answer = json.loads(response.read())
        return answer['outputs'][0]['data'], expected

    def test_sample_answers_and_switches_versions(self):
        self.varda.kubectl('apply', '-f', '-', input=SAMPLE % tuple(self.archives))
        self.varda.ready('facialexpression', '4')
        pod = self.varda.get('pod', 'facialexpression')
        self.assertEqual(pod['spec']['containers'][0]['image'], 'varda-serve')
        self.assertEqual(pod['spec']['nodeName'], 'precision-5820')
        for version in ('4', '3'):
            self.varda.kubectl('patch', 'inferencemodel', 'facialexpression', '--type=merge', '-p',
                               json.dumps({'spec': {'targetVersion': version}}))
            self.varda.ready('facialexpression', version)
            found, expected = self.answer(version)
            self.assertEqual(len(found), 7)
            for left, right in zip(found, expected):
                self.assertAlmostEqual(left, right, places=5)
        self.assertEqual(self.varda.get('pod', 'facialexpression')['metadata']['uid'], pod['metadata']['uid'])

    def test_damaged_graph_leaves_the_old_version_serving(self):
        self.varda.kubectl('apply', '-f', '-', input=SAMPLE % tuple(self.archives))
        self.varda.ready('facialexpression', '4')
        broken = self.work / 'broken'
        broken.mkdir()
        (broken / 'frozen.pb').write_bytes((GRAPHS / '3/frozen.pb').read_bytes()[:3000])
        out = self.work / 'www/broken.tar.gz'
        printed = self.varda.varda('pack', broken, '--framework', 'tensorflow', '-o', out)
        entry = {'version': '5', 'downloadURL': self.files.url(out.name), 'sha256sum': printed.split('sha256sum: ')[1].split('}')[0].strip()}
        manifest = self.varda.model('facialexpression')['spec']['manifest'] + [entry]
        self.varda.kubectl('patch', 'inferencemodel', 'facialexpression', '--type=merge', '-p',
                           json.dumps({'spec': {'manifest': manifest, 'targetVersion': '5'}}))
        condition = m.wait_until('the failure', lambda: [
            c for c in [self.varda.condition('facialexpression', 'TargetVersionReady')] if c['reason'] == 'LoadFailed'])[0]
        self.assertIn('not a frozen TensorFlow graph', condition['message'])
        found, expected = self.answer('4')
        for left, right in zip(found, expected):
            self.assertAlmostEqual(left, right, places=5)


if __name__ == '__main__':
    unittest.main()
