"""varda train --incremental on a desk: the digits 7 and 9 arrive, kills at any moment, no new samples."""
import hashlib, json, os, pathlib, random, shutil, signal, subprocess, sys, tempfile, time, unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / 'tests/support'), str(ROOT / 'bench')]
import machine as m  # noqa: E402
import continual  # noqa: E402

TRAIN = str(m.BIN / 'varda-train')
ROUND = {**continual.ROUND, 'epochs': 8, 'continual': {'replay': {'samples': 300}}}


class IncrementalDesk(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        cls.addClassCleanup(shutil.rmtree, cls.work, True)
        continual.make_data(cls.work)
        cls.base = cls.work / 'base-model'
        continual.train_base(m.BIN.parent, cls.work)

    def setUp(self):
        self.directory = self.work / self.id().rsplit('.', 1)[1]

    def command(self, directory, settings=ROUND, *flags, data=None, memory=True):
        file = self.work / 'settings.json'
        file.write_text(json.dumps(settings))
        return [TRAIN, '--incremental', '--dir', directory, '--data', data or self.work / 'stream', '--base', self.base, '--evaluate',
                self.work / 'test', '--settings', file, '--checkpoint-every', '10ms', *(['--old-data', self.work / 'memory'] if memory else []), *flags]

    def round(self, *arguments, **more):
        done = subprocess.run(list(map(str, self.command(self.directory, *arguments, **more))), capture_output=True, text=True, timeout=m.seconds(60))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def comparison(self, number):
        return json.loads((self.directory / ('round-%d/comparison.json' % number)).read_text())

    def test_new_digits_are_learned_and_old_ones_are_kept(self):
        out = self.round()
        self.assertIn('frozen: ', out)
        frozen = self.comparison(1)['slices'][0]
        old, new = continual.counts(frozen, False), continual.counts(frozen, True)
        self.assertEqual(new[0], 0, 'the base must not know 7 and 9')
        self.assertGreaterEqual(new[1], 0.95)
        self.assertLessEqual(old[0] - old[1], 0.05)
        self.assertIn('</html>', (self.directory / 'round-1/report.html').read_text())
        self.assertIn('earlier rounds have used all samples', self.round())

    def test_round_killed_at_random_moments_ends_with_the_same_bytes(self):
        self.round()
        model = hashlib.sha256((self.directory / 'round-1/model.onnx').read_bytes()).hexdigest()
        ledger = (self.directory / 'ledger.json').read_bytes()
        chance, kills, killed = random.Random(5), 0, self.work / 'killed'
        begin = time.monotonic()
        while True:
            process = subprocess.Popen(list(map(str, self.command(killed))), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            try:
                # Later moments make progress, whatever the speed of the machine.
                process.communicate(timeout=chance.uniform(0.02, 0.3) * (1 + kills / 4))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.communicate()
                kills += 1
                self.assertLess(time.monotonic() - begin, m.seconds(60))
                continue
            self.assertEqual(process.returncode, 0)
            break
        self.assertGreater(kills, 0)
        self.assertEqual(hashlib.sha256((killed / 'round-1/model.onnx').read_bytes()).hexdigest(), model)
        self.assertEqual((killed / 'ledger.json').read_bytes(), ledger)

    def test_samples_of_a_failed_round_count_again(self):
        stream = self.work / 'growing'
        shutil.copytree(self.work / 'stream', stream)
        self.round(data=stream)
        first = self.comparison(1)['selected']
        self.round(ROUND, '--give-back', data=stream)
        self.assertEqual(self.comparison(2)['selected'], first)
        shutil.copy(self.work / 'test/7' / sorted(os.listdir(self.work / 'test/7'))[0], stream / '7' / 'later.png')
        self.round(ROUND, '--refuse', data=stream)
        self.assertEqual(self.comparison(3)['selected'], {'train': 1, 'evaluate': 0})

    def test_streaming_layer_learns_from_the_digits_in_one_pass(self):
        self.round({**ROUND, 'continual': {'slda': {}}})
        frozen = self.comparison(1)['slices'][0]
        self.assertGreaterEqual(frozen['candidateRight'] / frozen['samples'], 0.94)

    def test_lists_name_the_files_of_the_selection(self):
        self.round(ROUND, '--select')
        lines = [(self.directory / 'selection' / name).read_text().split('\n')[:-1] for name in ('train.txt', 'test.txt')]
        self.assertEqual(len(lines[0]) + len(lines[1]), sum(len(files) for _, _, files in os.walk(self.work / 'stream')))
        path, label = lines[0][0].rsplit(' ', 1)
        self.assertTrue(os.path.exists(path))
        self.assertEqual(pathlib.Path(path).parent.name, label)


if __name__ == '__main__':
    unittest.main()
