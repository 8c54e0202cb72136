"""Clients of a federated job: three clients with other digits each make one model, and kill -9 of a client changes no byte of the result."""
import contextlib, hashlib, json, os, pathlib, re, shutil, signal, struct, subprocess, sys, tempfile, threading, time, unittest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[1] / 'support')]
import machine as m  # noqa: E402
import train_test  # noqa: E402

AGGREGATE = str(m.BIN / 'varda-aggregate')
LABELS = {'a': (0, 1, 2, 3), 'b': (4, 5, 6), 'c': (7, 8, 9)}


def digits():
    """Pixels from 0 to 1 and the label of each image of the training split."""
    images = (m.DIGITS / 'train-images.idx3-ubyte').read_bytes()[16:]
    labels = (m.DIGITS / 'train-labels.idx1-ubyte').read_bytes()[8:]
    largest = max(images)
    for i, label in enumerate(labels):
        yield [p / largest for p in images[64 * i:64 * i + 64]], label


@unittest.skipUnless(os.path.exists(AGGREGATE), 'needs varda-aggregate')
class Clients(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-federated-'))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        self.model = self.work / 'digits.onnx'
        self.model.write_bytes(train_test.mlp(64, 32, 10))
        files = {name: open(self.work / (name + '.csv'), 'w') for name in LABELS}
        for out in files.values():
            out.write(','.join('p%d' % i for i in range(64)) + ',label\n')
        for i, (pixels, label) in enumerate(digits()):
            # Most images go to the client of the label, some to another one.
            home = next(name for name, labels in LABELS.items() if label in labels)
            name = sorted(LABELS)[i // 8 % 3] if i % 8 == 0 else home
            files[name].write(','.join('%.4g' % p for p in pixels) + ',%d\n' % label)
        for out in files.values():
            out.close()

    @contextlib.contextmanager
    def aggregator(self, out, *flags):
        log = open(str(out) + '.log', 'w')
        process = subprocess.Popen([AGGREGATE, '--model', str(self.model), '--out', str(out), '--listen', '127.0.0.1:0', '--trust-clients', '--clients', '3',
                                    '--minimum-clients', '3', '--quorum', '3', '--round-deadline', '10m', *flags], stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            line = process.stdout.readline()
            found = re.search(r'ready: (http://\S+)', line)
            self.assertTrue(found, line + pathlib.Path(str(out) + '.log').read_text())
            # A full pipe would stop the process.
            threading.Thread(target=process.stdout.read, daemon=True).start()
            yield process, found.group(1)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stdout.close()
            log.close()

    def client(self, url, run, name, *flags):
        log = open(self.work / ('%s-%s.log' % (run, name)), 'a')
        with log:
            return subprocess.Popen([train_test.TRAIN, '--federated', url, '--data', str(self.work / (name + '.csv')), '--out', str(self.work / run / name),
                                     '--client-name', name, '--threads', '1', *flags], stdout=log, stderr=log)

    def log_of(self, run, name):
        return (self.work / ('%s-%s.log' % (run, name))).read_text()

    def job(self, run, *flags, kill=None, demand=None):
        """The report and the digest of the result. `kill` is a client that gets SIGKILL in mid-round, again and again."""
        out = self.work / (run + '-out')
        with self.aggregator(out, '--rounds', '5', *flags) as (process, url):
            flags = ('--checkpoint-every', '20ms', *(('--secure', demand) if demand else ()))
            clients = {name: self.client(url, run, name, *flags) for name in LABELS}
            try:
                kills = 0
                checkpoint = self.work / run / str(kill) / 'client/checkpoint'
                end = time.monotonic() + m.seconds(300)
                while kill and kills < 4 and time.monotonic() < end and clients[kill].poll() is None:
                    if not checkpoint.exists():
                        time.sleep(0.002)
                        continue
                    clients[kill].kill()
                    clients[kill].wait()
                    kills += 1
                    clients[kill] = self.client(url, run, kill, *flags)
                    time.sleep(0.5)
                for name, client in clients.items():
                    self.assertEqual(client.wait(timeout=m.seconds(300)), 0, self.log_of(run, name))
                self.assertEqual(process.wait(timeout=m.seconds(60)), 0)
            finally:
                for client in clients.values():
                    if client.poll() is None:
                        client.kill()
                        client.wait()
        if kill:
            self.assertGreaterEqual(kills, 2)
            self.assertIn('round continues from a checkpoint', self.log_of(run, kill))
        return json.loads((out / 'report.json').read_text()), hashlib.sha256((out / 'model.onnx').read_bytes()).hexdigest()

    def settings(self, **more):
        path = self.work / 'settings.yaml'
        path.write_text(json.dumps({'localEpochs': 20, 'trainer': {'batchSize': 16, 'optimizer': {'learningRate': 0.05}}, 'seed': 3, **more}))
        return '--settings', str(path)

    def test_accuracy_rises_and_a_killed_client_changes_no_byte(self):
        report, digest = self.job('plain', *self.settings())
        accuracy = [record['evaluation']['accuracy'] for record in report['history']]
        self.assertEqual(len(accuracy), 5)
        self.assertGreater(accuracy[-1], accuracy[0])
        self.assertGreater(accuracy[-1], 0.6, 'one model for all digits, though no client has them all')
        self.assertEqual(report['history'][-1]['updates'], 3)
        self.assertIn('5 updates accepted, 0 dropped', self.log_of('plain', 'a'))
        _, killed = self.job('killed', *self.settings(), kill='b')
        self.assertEqual(killed, digest)

    def test_compressed_scaffold_rounds_end(self):
        report, _ = self.job('scaffold', *self.settings(localEpochs=2, aggregator={'name': 'SCAFFOLD'}, compression={'encoding': 'int8'}))
        self.assertGreater(report['history'][-1]['evaluation']['accuracy'], report['history'][0]['evaluation']['accuracy'])

    def test_secure_rounds_end_and_a_plain_job_is_refused(self):
        report, _ = self.job('secure', *self.settings(localEpochs=5), '--secure-aggregation', demand='{}')
        accuracy = [record['evaluation']['accuracy'] for record in report['history']]
        self.assertGreater(accuracy[-1], accuracy[0])
        self.assertEqual([record['updates'] for record in report['history']], [3] * 5)
        self.assertIn('5 updates accepted, 0 dropped', self.log_of('secure', 'a'))
        # A client that demands it refuses a plain job.
        with self.aggregator(self.work / 'open-out', '--rounds', '1') as (_, url):
            clients = [self.client(url, 'open', name, '--secure', '{}') for name in LABELS]
            self.assertEqual([client.wait(timeout=m.seconds(60)) for client in clients], [2] * 3)
        self.assertIn('promises secure aggregation', self.log_of('open', 'a'))

    def test_wrong_data_end_with_two(self):
        with self.aggregator(self.work / 'wrong-out', '--rounds', '1') as (_, url):
            missing = subprocess.run([train_test.TRAIN, '--federated', url, '--data', str(self.work / 'none.csv'), '--out', str(self.work / 'wrong')],
                                     capture_output=True, text=True, timeout=m.seconds(60))
        self.assertEqual(missing.returncode, 2)
        self.assertIn('none.csv', missing.stderr)


if __name__ == '__main__':
    unittest.main()
