"""varda-aggregate with Flower clients: stock grpcio and protobuf, and messages of tests/support/flower_wire.py."""
import json, pathlib, shutil, struct, subprocess, sys, tempfile, unittest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[1] / 'support')]
import machine as m  # noqa: E402
from federated_test import safetensors  # noqa: E402

AGGREGATE = str(m.BIN / 'varda-aggregate')
CLIENT = pathlib.Path(__file__).resolve().parents[1] / 'support/flower_wire.py'
PYTHON = '/usr/bin/python3'  # Debian's packages are for this one


def has_grpcio():
    return subprocess.run([PYTHON, '-c', 'import grpc'], stderr=subprocess.DEVNULL).returncode == 0


def weights_of(path):
    data = path.read_bytes()
    size = struct.unpack('<Q', data[:8])[0]
    header = json.loads(data[8:8 + size])
    out = {}
    for name, entry in header.items():
        if name != '__metadata__':
            begin, end = entry['data_offsets']
            out[name] = list(struct.unpack('<%df' % ((end - begin) // 4), data[8 + size + begin:8 + size + end]))
    return out


@unittest.skipUnless(has_grpcio(), 'python3-grpcio is not installed')
class Flower(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-flower-'))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        (self.work / 'm.safetensors').write_bytes(safetensors({'b': ([2], [10.0, 20.0]), 'w': ([2, 3], [0.0] * 6)}))

    def aggregate(self, *flags):
        with open(self.work / 'log', 'a') as log:
            process = subprocess.Popen([AGGREGATE, '--model', str(self.work / 'm.safetensors'), '--out', str(self.work / 'out'),
                                        '--listen', '127.0.0.1:0', '--flower', '127.0.0.1:0', *flags],
                                       stdout=subprocess.PIPE, stderr=log, text=True)
        self.addCleanup(self.end, process)
        line = process.stdout.readline()
        self.assertIn(', flower 127.0.0.1:', line, (self.work / 'log').read_text())
        return process, line.split()[-1]

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def client(self, address, step, examples):
        process = subprocess.Popen([PYTHON, str(CLIENT), address, str(step), str(examples)], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        self.addCleanup(self.end, process)
        return process

    def test_python_clients_train_a_model(self):
        server, address = self.aggregate('--rounds', '2', '--minimum-clients', '2', '--clients', '2', '--evaluate-every', '1')
        clients = [self.client(address, 1, 30), self.client(address, 5, 10)]
        for client in clients:
            output = client.communicate(timeout=m.seconds(60))[0]
            self.assertEqual(output.split("'")[1::2].count('fit_ins'), 2, output)
            self.assertEqual(output.split("'")[1::2].count('evaluate_ins'), 2, output)
            self.assertTrue(output.endswith("'reconnect_ins']\n"), output)
        output = server.communicate(timeout=m.seconds(60))[0]
        self.assertEqual(server.returncode, 0, output + (self.work / 'log').read_text())
        # (1 * 30 + 5 * 10) / 40 = 2 in each round
        self.assertEqual(weights_of(self.work / 'out/model.safetensors'), {'b': [14.0, 24.0], 'w': [4.0] * 6})
        report = json.loads((self.work / 'out/report.json').read_text())
        self.assertEqual([record['evaluation']['loss'] for record in report['history']], [0.25, 0.25], report)
        log = (self.work / 'log').read_text()
        for name in 'flower/127.0.0.1/0', 'flower/127.0.0.1/1':
            self.assertIn('client of Flower joined client=' + name, log)

    def test_client_with_nan_is_refused(self):
        server, address = self.aggregate('--rounds', '2', '--minimum-clients', '2', '--clients', '3', '--quorum', '2',
                                         '--evaluate-every', '0')
        clients = [self.client(address, 1, 10), self.client(address, 3, 10), self.client(address, 'nan', 10)]
        for client in clients:
            client.communicate(timeout=m.seconds(90))
        server.communicate(timeout=m.seconds(60))
        self.assertEqual(server.returncode, 0, (self.work / 'log').read_text())
        self.assertEqual(weights_of(self.work / 'out/model.safetensors'), {'b': [14.0, 24.0], 'w': [4.0] * 6})
        self.assertIn('not finite', (self.work / 'log').read_text())


if __name__ == '__main__':
    unittest.main()
