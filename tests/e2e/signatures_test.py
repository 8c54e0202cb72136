"""`varda up --model-keys`: signed versions serve; versions without a signature, with that of another
key, model, version or archive are refused, and the version that serves stays."""
import json, pathlib, shutil, subprocess, sys, tempfile, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402


class Signatures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        cls.addClassCleanup(shutil.rmtree, cls.work, True)
        (cls.work / 'www').mkdir()
        cls.files = m.FileServer(cls.work / 'www')
        cls.addClassCleanup(cls.files.stop)
        cls.varda = m.Machine(cls.work / 'data', nodes=['edge0=edge'])
        cls.addClassCleanup(cls.varda.close)
        keys = cls.work / 'model-keys'
        keys.write_text(cls.key('release'))
        cls.key('stranger')
        cls.varda.up('--model-keys', keys)
        cls.digest = {}
        for v in ('3', '4'):
            cls.digest[v] = m.pack(cls.varda, v, cls.work / 'www' / ('digits-%s.tar.gz' % v))

    @classmethod
    def key(cls, name):
        return cls.sign('--generate', cls.work / (name + '.pem'))

    @classmethod
    def sign(cls, *args):
        return subprocess.run([m.BIN / 'varda', 'sign', *map(str, args)], capture_output=True, text=True, check=True).stdout

    def signature(self, version, name='digits', key='release', of=None):
        return self.sign('--key', self.work / (key + '.pem'), '--name', name, '--version', version, '--sha256', self.digest[of or version]).strip()

    def serve(self, target, **signatures):
        """An InferenceModel with versions 3 and 4, as v3 and v4 of their signatures."""
        model = m.inference_model('digits', 'edge', [(v, self.files.url('digits-%s.tar.gz' % v), self.digest[v]) for v in ('3', '4')], target, node='edge0')
        for entry in model['spec']['manifest']:
            if signature := signatures.get('v' + entry['version']):
                entry['signature'] = signature
        self.varda.kubectl('apply', '-f', '-', input=json.dumps(model))

    def refused(self, words):
        def probe():
            model = self.varda.model('digits')
            return [c for c in model.get('status', {}).get('conditions', []) if c['type'] == 'TargetVersionReady' and c['status'] == 'False'
                    and c['reason'] == 'SignatureRefused' and c.get('observedGeneration') == model['metadata']['generation']]
        message = m.wait_until('the refusal: ' + words, probe)[0]['message']
        self.assertIn(words, message)

    def versions_on_the_node(self):
        models = self.varda.get('edgenode', 'edge0').get('spec', {}).get('models', [])
        return sorted(v['version'] for model in models for v in model.get('versions', []))

    def test_only_signed_versions_reach_the_node(self):
        good = {v: self.signature(v) for v in ('3', '4')}
        self.serve('3')
        self.refused('has no signature')
        self.assertEqual((self.versions_on_the_node(), self.varda.pods()), ([], []))
        self.serve('3', v3=good['3'])
        self.varda.ready('digits', '3')
        self.assertEqual(self.versions_on_the_node(), ['3'])
        for bad, words in ((None, 'has no signature'),
                           (self.signature('4', key='stranger'), 'bad signature'),
                           (self.signature('4', name='other'), 'bad signature'),
                           (self.signature('4', of='3'), 'bad signature'),
                           (good['3'], 'bad signature'),
                           ('c2lnbmVk', 'malformed signature')):
            self.serve('4', v3=good['3'], v4=bad)
            self.refused(words)
            self.assertEqual(self.versions_on_the_node(), ['3'])
            self.assertEqual([c['status'] for c in self.varda.model('digits')['status']['conditions'] if c['type'] == 'Ready'], ['True'])
        self.serve('4', v3=good['3'], v4=good['4'])
        self.varda.ready('digits', '4')


if __name__ == '__main__':
    unittest.main()
