"""Two InferenceModels, asked by a Pod of the user (docs/guides/two-models-and-a-pod.md) or by a
JointInferenceService."""
import json, pathlib, shutil, sys, tempfile, unittest, urllib.error, urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import joint as j  # noqa: E402
import machine as m  # noqa: E402

JOINT = m.ROOT / 'examples/joint'
DECIDE = m.ROOT / 'examples/workers/python/decide.py'


def infer(url, body):
    request = urllib.request.Request(url + '/v2/models/digits/infer', data=body)
    with m.DIRECT.open(request, timeout=m.seconds(60)) as reply:
        return json.load(reply)


class TwoModels(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        self.files = m.FileServer(self.work)
        self.addCleanup(self.files.stop)
        self.varda = m.Machine(self.work / 'machine')
        self.addCleanup(self.close)

    def close(self):
        if not self._outcome.success:
            self.varda.show_logs()
        self.varda.close()

    def serve_two_models(self, *flags):
        """Starts a machine with the InferenceModels of the guide; returns {'small': URL, 'big': URL}."""
        models = (JOINT / 'two-models.yaml').read_text()
        for name in ['small', 'big']:
            self.assertIn(m.pack(self.varda, name, self.work / ('digits-%s.tar.gz' % name)), models)
        self.varda.up(*flags)
        models = models.replace('http://127.0.0.1:8000', self.files.url('').rstrip('/')).replace('8091', str(m.free_port()))
        self.varda.kubectl('create', '-f', '-', input=models)
        return {name: self.varda.ready('digits-' + name)['status']['url'] for name in ['small', 'big']}

    def test_pod_asks_the_big_model_if_the_small_one_is_unsure(self):
        url = self.serve_two_models('--image', 'decide:1=%s %s' % (sys.executable, DECIDE))
        pod = (JOINT / 'decide-pod.yaml').read_text().replace('URL_OF_SMALL', url['small']).replace('URL_OF_BIG', url['big'])
        port = m.free_port()
        self.varda.varda('apply', '-f', '-', input=pod.replace('8092', str(port)))
        self.varda.varda('wait', 'pod/digits', '--for=condition=Ready', '--timeout=120s')
        decide = 'http://%s:%d' % (self.varda.get('pod', 'digits')['status']['podIP'], port)

        hard = (JOINT / 'request.json').read_bytes()
        answer = infer(decide, hard)
        self.assertEqual(answer['parameters'], {'tier': 'cloud'})
        self.assertEqual(answer['outputs'], infer(url['big'], hard)['outputs'])
        tiers = set()
        for image in j.test_split()[0][:20]:
            body = json.dumps({'inputs': [{'name': 'images', 'shape': [1, 8, 8], 'datatype': 'FP32', 'data': list(image)}]}).encode()
            sure = max(infer(url['small'], body)['outputs'][0]['data']) >= 0.7
            tier = infer(decide, body)['parameters']['tier']
            self.assertEqual(tier, 'edge' if sure else 'cloud')
            tiers.add(tier)
        self.assertEqual(tiers, {'edge', 'cloud'})
        with self.assertRaises(urllib.error.HTTPError) as refused:
            infer(decide, b'{"inputs": []}')
        self.assertEqual(refused.exception.code, 400)

        self.varda.varda('scale', 'inferencemodel/digits-big', '--replicas', '0')
        self.varda.varda('wait', 'inferencemodel/digits-big', '--for=jsonpath={.status.readyReplicas}=0', '--timeout=120s')
        m.wait_until('the small model answers alone', lambda: infer(decide, hard)['parameters'] == {'tier': 'edge', 'fallback': True})

    def test_joint_service_asks_models_that_serve_already(self):
        url = self.serve_two_models()
        # The edge node asks itself: the later tier is the InferenceModel of the same node.
        self.varda.varda('apply', '-f', '-', input=json.dumps({
            'apiVersion': 'sedna.io/v1alpha1', 'kind': 'JointInferenceService', 'metadata': {'name': 'digits'}, 'spec': {'tiers': [
                {'name': 'first', 'nodeName': 'edge0', 'model': {'name': 'digits-big'}, 'policy': {'name': 'AlwaysCloud'}},
                {'name': 'line', 'nodeName': 'edge0', 'model': {'name': 'digits-small', 'kind': 'InferenceModel'}}]}}))
        self.varda.varda('wait', 'jis/digits', '--for=condition=Ready', '--timeout=120s')
        service = self.varda.get('jis', 'digits')['status']
        self.assertEqual([tier['url'] for tier in service['tiers']], [service['url'], url['small']])
        self.assertEqual({one['metadata']['name'] for one in self.varda.get('inferencemodels')['items']}, {'digits-small', 'digits-big'})
        hard = (JOINT / 'request.json').read_bytes()
        answer = infer(service['url'], hard)
        self.assertEqual((answer['parameters']['tier'], answer['outputs']), ('line', infer(url['small'], hard)['outputs']))
        answer_of_big = infer(url['big'], hard)['outputs']
        # The first tier has its own copy of the big model, so the InferenceModel may stop.
        self.varda.varda('scale', 'inferencemodel/digits-big', '--replicas', '0')
        self.varda.varda('wait', 'inferencemodel/digits-big', '--for=jsonpath={.status.readyReplicas}=0', '--timeout=120s')
        request = urllib.request.Request(service['url'] + '/v2/models/digits/versions/1/infer', data=hard)
        with m.DIRECT.open(request, timeout=m.seconds(60)) as reply:
            self.assertEqual(json.load(reply)['outputs'], answer_of_big)


if __name__ == '__main__':
    unittest.main(verbosity=2)
