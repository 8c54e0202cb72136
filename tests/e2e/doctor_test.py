"""`varda doctor` and the validation cases, over a socket."""
import json, pathlib, shutil, subprocess, sys, tempfile, unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / 'tests/support'))
import machine as m  # noqa: E402


class Doctor(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-doctor-'))
        cls.varda = m.Machine(cls.work / 'data', nodes=['cloud=cloud', 'edge0=edge'])
        cls.varda.up()

    @classmethod
    def tearDownClass(cls):
        cls.varda.close()
        shutil.rmtree(cls.work, ignore_errors=True)

    def doctor(self, *words):
        done = self.varda.run([m.VARDA, 'doctor', *words], check=False)
        return done.returncode, done.stdout + done.stderr

    def test_doctor_accepts_varda_up_and_reports_a_missing_gateway(self):
        code, output = self.doctor('-o', 'json')  # `varda up` has just reported ready
        self.assertEqual((code, json.loads(output)['problems']), (0, 0), output)
        code, output = self.doctor('--gateway', 'https://127.0.0.1:1')
        self.assertEqual(code, 1)
        self.assertIn('BAD   gateway https://127.0.0.1:1', output)
        self.assertIn('1 problem found', output)
        self.assertEqual(self.doctor('-o', 'yaml')[0], 2)

    def test_every_validation_case_matches_the_tables(self):
        command = [sys.executable, str(ROOT / 'tests/conformance/run'), '--kubeconfig', str(self.varda.dir / 'kubeconfig')]
        done = subprocess.run(command, capture_output=True, text=True, timeout=m.seconds(300))
        self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr)
        self.assertIn('all agree', done.stdout)
        left = lambda: [o['metadata']['name'] for kind in ('namespaces', 'edgenodes') for o in self.varda.get(kind)['items']]
        m.wait_until('nothing of it left', lambda: not any(name.startswith('validation-') for name in left()))


if __name__ == '__main__':
    unittest.main()
