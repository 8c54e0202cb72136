"""A version on trial of an edge model, under load: shadow, canary, promotion and the end."""
import json, pathlib, shutil, subprocess, sys, tempfile, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402


class Trial(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        (cls.work / 'www').mkdir()
        cls.files = m.FileServer(cls.work / 'www')
        cls.varda = m.Machine(cls.work / 'data', nodes=['edge0=edge'])
        cls.varda.up()
        cls.varda.nodes_ready()
        cls.entries = []
        for v in ('3', '4'):
            out = cls.work / 'www' / ('digits-%s.tar.gz' % v)
            cls.entries.append((v, cls.files.url(out.name), m.pack(cls.varda, v, out)))
        shape, pixels = m.read_idx(m.DIGITS / 'test-images.idx3-ubyte')
        size = shape[1] * shape[2]
        cls.images = [pixels[i * size:(i + 1) * size] for i in range(50)]

    @classmethod
    def tearDownClass(cls):
        cls.varda.close()
        cls.files.stop()
        shutil.rmtree(cls.work, ignore_errors=True)

    def tearDown(self):
        if any(e for _, e in getattr(getattr(self, '_outcome', None), 'errors', []) or []):
            self.varda.show_logs()

    def patch(self, spec):
        self.varda.kubectl('patch', 'inferencemodel', 'a', '--type=merge', '-p', json.dumps({'spec': spec}))

    def trial(self, what, condition):
        def found():
            trial = self.varda.model('a').get('status', {}).get('trial', {})
            return condition(trial) and trial
        return m.wait_until(what, found)

    def test_no_request_fails_from_the_start_of_a_trial_to_its_end(self):
        manifest = m.inference_model('a', 'edge', self.entries, '3', node='edge0')
        manifest['spec']['samples'] = {'hardExampleMining': {'name': 'Margin', 'parameters': [{'key': 'threshold_margin', 'value': '0.9'}]}}
        self.varda.kubectl('apply', '-f', '-', input=json.dumps(manifest))
        url = self.varda.ready('a', '3')['status']['url']
        load = m.Load(url, 'a', self.images)

        self.patch({'trial': {'version': '4', 'mode': 'shadow'}})
        shadow = self.trial('20 compared answers', lambda t: t.get('compared', 0) >= 20)
        self.assertEqual((shadow['state'], shadow['mode'], shadow['version']), ('Ready', 'shadow', '4'))
        self.assertGreater(shadow['agreed'] / shadow['compared'], 0.5, 'both are models of digits')
        self.assertEqual(shadow.get('failures', 0), 0)
        self.assertGreater(shadow['serving']['answers'], 0)
        self.assertGreater(shadow['microseconds']['trial'], 0)
        both = self.trial('hard answers of both versions', lambda t: t.get('hard') and t.get('serving', {}).get('hard') and t)
        self.assertLess(both['hard'], both['answers'], 'some digits are easy')

        self.patch({'trial': {'mode': 'canary', 'share': 0.25}})
        canary = self.trial('20 answers of the canary', lambda t: t.get('mode') == 'canary' and t.get('answers', 0) >= 20)
        everything = canary['answers'] + canary['serving']['answers']
        self.assertAlmostEqual(canary['answers'] / everything, 0.25, delta=0.05)
        load.answered('4')
        live = json.loads(subprocess.run(['curl', '-sS', url + '/v2/models/a/trial'], check=True, capture_output=True).stdout)
        self.assertEqual((live['state'], live['version'], live['serving']['version']), ('Ready', '4', '3'))

        self.patch({'targetVersion': '4'})
        self.varda.ready('a', '4')
        self.trial('the trial to end', lambda t: t.get('state') == 'Ended')
        self.patch({'trial': None})
        m.wait_until('no trial', lambda: 'trial' not in self.varda.model('a')['status'])
        log = self.varda.kubectl('logs', 'a')
        self.assertEqual(log.count('loading model version'), 2, 'the promoted version is loaded once')
        samples = load.stop()
        self.assertEqual(m.failures(samples), [])


if __name__ == '__main__':
    unittest.main()
