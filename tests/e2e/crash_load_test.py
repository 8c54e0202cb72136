"""A version that crashes the engine during its load, under requests.

The serving version continues unharmed, a restarted server serves it too, and users see the cause.

The engine is the one for tests (plugins/echo). Its models contain commands: `crash_load 11` ends
the process that loads the model.
"""
import json, os, pathlib, shutil, signal, sys, tempfile, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402

ENGINES = m.BIN.parent / 'lib/varda-testing'
GOOD = 'tensor FP32 -1 1\nscale %s\n'


class CrashingLoad(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-crash-'))
        (cls.work / 'www').mkdir()
        cls.files = m.FileServer(cls.work / 'www')
        cls.varda = m.Machine(cls.work / 'data', nodes=['edge0=edge'])
        servers = cls.work / 'servers.yaml'
        args = ['--model-repository=/models', '--http=$(POD_IP):{port}', '--engine-path=' + str(ENGINES)]
        servers.write_text(json.dumps({'servers': {'onnx': {'image': 'varda-serve', 'args': args, 'mountPath': '/models/{modelName}',
                                                'readyPath': '/v2/models/{modelName}/ready'}}}))
        cls.varda.up('--servers', servers)

    @classmethod
    def tearDownClass(cls):
        cls.varda.close()
        cls.files.stop()
        shutil.rmtree(cls.work, ignore_errors=True)

    def tearDown(self):
        if any(e for _, e in getattr(getattr(self, '_outcome', None), 'errors', []) or []):
            self.varda.show_logs()

    def archive(self, version, text):
        folder = self.work / version
        folder.mkdir()
        (folder / 'model.onnx').write_text(text)
        (folder / 'model.yaml').write_text('engine: echo\n')
        out = self.work / 'www' / (version + '.tar.gz')
        packed = self.varda.varda('pack', folder, '--version-name', version, '-o', out)
        sha = [line.split('sha256sum:')[1].split(',')[0].strip(" '\"}") for line in packed.splitlines() if 'sha256sum' in line][0]
        return version, self.files.url(out.name), sha

    def apply(self, entries, target):
        self.varda.kubectl('apply', '-f', '-', input=json.dumps(m.inference_model('a', 'edge', entries, target, node='edge0')))

    def reason(self, text):
        return m.wait_until('%s in a condition' % text, lambda: [
            c for c in self.varda.model('a').get('status', {}).get('conditions', []) if c.get('reason') == text])[0]

    def server(self):
        status = self.varda.pods()[0]['status']['containerStatuses'][0]
        return status['restartCount'], int(status['containerID'].split('://')[1].split('-')[0])

    def test_crashing_version_never_stops_the_old_one(self):
        entries = [self.archive('1', GOOD % 1), self.archive('2', 'crash_load %d\n' % signal.SIGSEGV), self.archive('3', GOOD % 3)]
        self.apply(entries, '1')
        url = self.varda.ready('a', '1')['status']['url']
        before = self.server()
        load = m.Load(url, 'a', [[1]], clients=2)
        try:
            self.apply(entries, '2')
            condition = self.reason('LoadCrashed')
            self.assertIn('SIGSEGV', condition['message'])
            self.assertIn('echo: crashes as requested', condition['message'])
            self.assertEqual(self.varda.ready('a')['status']['servingVersion'], '1')
            # No server restarted, not even between two requests.
            self.assertEqual(self.server(), before)
            self.apply(entries, '3')
            self.varda.ready('a', '3')
            m.wait_until('the condition to clear', lambda: 'LoadCrashed' not in json.dumps(self.varda.model('a')['status']['conditions']))
            load.answered('3')
        finally:
            samples = load.stop()
        self.assertEqual(m.failures(samples), [])
        self.assertEqual({s[3] for s in samples}, {'1', '3'})

        # A server that starts while the crashing version is the target serves the version that
        # served last.
        self.apply(entries, '2')
        self.reason('LoadCrashed')
        restarts, pid = self.server()
        os.kill(pid, signal.SIGKILL)
        m.wait_until('a restart', lambda: self.server()[0] > restarts)
        self.assertEqual(self.varda.ready('a', '3')['status']['servingVersion'], '3')
        client = m.Client(self.varda.model('a')['status']['url'], 'a', [[1]])

        def answered():
            client.prepare()
            return client.one() and client.samples[-1][3]
        self.assertEqual(m.wait_until('an answer', answered), '3')
        self.reason('LoadCrashed')


if __name__ == '__main__':
    unittest.main()
