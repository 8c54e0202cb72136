"""varda-train on a desk: a table is trained, kills do not change the result, wrong input is named."""
import json, os, pathlib, random, re, shutil, signal, struct, subprocess, sys, tarfile, tempfile, time, unittest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[1] / 'support')]
import machine as m  # noqa: E402
import uploads_test  # noqa: E402

TRAIN = str(m.BIN / 'varda-train')


# ---- a writer of small ONNX files (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto)
def varint(value):
    out = b''
    while value > 0x7f:
        out += bytes([value & 0x7f | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def value_info(name, *dimensions):
    shape = b''.join(field(1, field(2, d) if isinstance(d, str) else field(1, d)) for d in dimensions)
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)))


def initializer(name, shape, values):
    return b''.join(field(1, d) for d in shape) + field(2, 1) + field(8, name) + field(9, struct.pack('<%df' % len(values), *values))


def node(operator, inputs, output):
    return b''.join(field(1, i) for i in inputs) + field(2, output) + field(3, output + '_node') + field(4, operator)


def mlp(features, hidden, classes, seed=1):
    """Bytes of a perceptron with one hidden layer."""
    draw = random.Random(seed)
    weights = lambda count: [draw.uniform(-0.3, 0.3) for _ in range(count)]
    graph = b''.join(field(1, n) for n in (
        node('MatMul', ['x', 'w1'], 'h1'), node('Add', ['h1', 'b1'], 'h2'), node('Relu', ['h2'], 'h3'),
        node('MatMul', ['h3', 'w2'], 'h4'), node('Add', ['h4', 'b2'], 'scores')))
    graph += field(2, 'mlp')
    graph += b''.join(field(5, i) for i in (
        initializer('w1', [features, hidden], weights(features * hidden)), initializer('b1', [hidden], [0.0] * hidden),
        initializer('w2', [hidden, classes], weights(hidden * classes)), initializer('b2', [classes], [0.0] * classes)))
    graph += field(11, value_info('x', 'batch', features)) + field(12, value_info('scores', 'batch', classes))
    return field(1, 8) + field(7, graph) + field(8, field(1, '') + field(2, 17))


def table(path, rows, features=4, classes=3, seed=1):
    """Samples around one point for each class."""
    draw = random.Random(seed)
    with open(path, 'w') as out:
        out.write(','.join('f%d' % i for i in range(features)) + ',label\n')
        for i in range(rows):
            label = i % classes
            out.write(','.join('%.4f' % (draw.gauss(0, 0.4) + (2 if j % classes == label else 0)) for j in range(features)) + ',%d\n' % label)


class Train(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-train-'))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        self.model = self.work / 'shapes.onnx'
        self.model.write_bytes(mlp(4, 16, 3))
        self.data = self.work / 'train.csv'
        table(self.data, 600)

    def command(self, out, *flags, model=None, data=None, program=(TRAIN,)):
        return [*program, '--model', str(model or self.model), '--data', str(data or self.data), '--out', str(out),
                '--learning-rate', '0.1', '--threads', '1', *flags]

    def train(self, out, *flags, **options):
        return subprocess.run(self.command(out, *flags, **options), capture_output=True, text=True, timeout=m.seconds(300))

    def trained(self, out, *flags, **options):
        run = self.train(out, *flags, **options)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run

    def test_table_is_learned_and_the_directory_is_complete(self):
        out = self.work / 'out'
        run = self.trained(out, '--epochs', '5')
        accuracy = float(re.search(r'accuracy +([0-9.]+)', run.stdout)[1])
        self.assertGreater(accuracy, 0.95)
        self.assertIn('next: varda push %s --name shapes --metric accuracy=' % out, run.stdout)
        self.assertEqual(len(re.findall(r'^epoch \d/5  loss ', run.stderr, re.M)), 5, run.stderr)
        self.assertNotIn('\033', run.stderr)
        self.assertEqual((out / 'labels.txt').read_text(), '0\n1\n2\n')
        self.assertNotEqual((out / 'model.onnx').read_bytes(), self.model.read_bytes())
        report = (out / 'report.html').read_text()
        self.assertIn('Confusion matrix', report)
        self.assertNotIn('<script', report)
        self.assertEqual(sorted(os.listdir(out)), ['labels.txt', 'metrics.json', 'model.onnx', 'report.html'])
        self.assertGreater(json.loads((out / 'metrics.json').read_text())['metrics']['accuracy'], 0.95)

    def test_killed_run_ends_with_the_bytes_of_an_uninterrupted_one(self):
        flags = ('--epochs', '60', '--batch-size', '2', '--checkpoint-every', '50ms', '--seed', '7')
        whole, killed = self.work / 'whole', self.work / 'killed'
        self.trained(whole, *flags)
        kills = 0
        draw = random.Random(3)
        for _ in range(4):
            with open(self.work / 'log', 'w') as log:
                process = subprocess.Popen(self.command(killed, *flags), stdout=subprocess.DEVNULL, stderr=log)
            try:
                m.wait_until('a checkpoint', lambda: process.poll() is not None or (killed / 'checkpoint').exists(), every=0.01)
                time.sleep(draw.uniform(0, 0.5))
            finally:
                process.kill()
                kills += process.wait() == -signal.SIGKILL
        self.assertGreaterEqual(kills, 1)
        self.trained(killed, *flags)
        self.assertEqual((killed / 'model.onnx').read_bytes(), (whole / 'model.onnx').read_bytes())

    def test_stopped_run_writes_a_checkpoint_and_continues(self):
        flags = ('--epochs', '1000', '--batch-size', '1', '--checkpoint-every', '1h')
        out = self.work / 'out'
        for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            with open(self.work / 'log', 'w') as log:
                process = subprocess.Popen(self.command(out, *flags), stdout=subprocess.DEVNULL, stderr=log)
            try:
                m.wait_until('an epoch', lambda: m.running(process, self.work / 'log') and 'epoch ' in (self.work / 'log').read_text())
                process.send_signal(number)
                self.assertEqual(process.wait(timeout=m.seconds(60)), code)
            finally:
                process.kill()
                process.wait()
            self.assertIn('stopped; the same command continues this run', (self.work / 'log').read_text())
            self.assertTrue((out / 'checkpoint').exists())

    def test_directory_of_a_model_keeps_its_settings(self):
        model = self.work / 'shapes/3'
        model.mkdir(parents=True)
        self.model.rename(model / 'model.onnx')
        (model / 'model.yaml').write_text('instances: 1\npostprocess: {softmax: {input: scores}}\n')
        (model / 'labels.txt').write_text('zero\none\ntwo\n')
        out = self.work / 'out'
        run = self.trained(out, '--epochs', '1', model=model)
        self.assertIn('--name shapes ', run.stdout)
        self.assertEqual((out / 'model.yaml').read_text(), (model / 'model.yaml').read_text())
        self.assertEqual((out / 'labels.txt').read_text(), 'zero\none\ntwo\n')

    def test_last_layer_is_replaced_for_other_classes(self):
        data = self.work / 'five.csv'
        table(data, 500, classes=5)
        run = self.train(self.work / 'out', data=data)
        self.assertEqual(run.returncode, 2)
        self.assertIn('has 5 classes, but output "scores" of the model has 3: --classes 5', run.stderr)
        self.trained(self.work / 'out', '--classes', '5', '--epochs', '1', data=data)
        self.assertEqual((self.work / 'out/labels.txt').read_text(), '0\n1\n2\n3\n4\n')

    def test_wrong_input_ends_with_two_and_one_line(self):
        empty, header = self.work / 'empty.csv', self.work / 'header.csv'
        empty.write_text('')
        header.write_text('a,b,c,d,label\n')
        text = self.work / 'text.onnx'
        text.write_text('no model')
        wide = self.work / 'wide.csv'
        table(wide, 30, features=5)
        cases = [
            (dict(data=self.work / 'none.csv'), (), 'none.csv'),
            (dict(data=empty), (), 'empty.csv'),
            (dict(data=header), (), 'header.csv'),
            (dict(data=wide), (), '5'),
            (dict(model=self.work / 'none.onnx'), (), 'none.onnx does not exist'),
            (dict(model=text), (), 'text.onnx'),
            ({}, ('--label', 'colour'), 'colour'),
            ({}, ('--freeze', '*'), 'frozen'),
            ({}, ('--loss', 'mse'), 'loss'),
            ({}, ('--epochs', '1', '--colour', 'red'), 'there is no flag --colour'),
        ]
        for number, (options, flags, expected) in enumerate(cases):
            with self.subTest(expected):
                run = self.train(self.work / str(number), *flags, **options)
                self.assertEqual(run.returncode, 2, run.stderr)
                self.assertIn(expected, run.stderr)
                self.assertNotIn('terminate', run.stderr)

    def test_unwritable_directory_is_named(self):
        occupied = self.work / 'file'
        occupied.write_text('')
        run = self.train(occupied)
        self.assertIn('--out', run.stderr)
        self.assertIn(run.returncode, (1, 2))

    def test_varda_train_runs_the_same_program(self):
        run = self.trained(self.work / 'out', '--epochs', '1', program=(m.VARDA, 'train'))
        self.assertIn('next: varda push', run.stdout)
        self.assertEqual(subprocess.run([m.VARDA, 'train', '--epochs'], capture_output=True).returncode, 2)
        for program in ([TRAIN], [m.VARDA, 'train']):
            self.assertIn('--learning-rate', subprocess.run([*program, '--help'], capture_output=True, text=True).stdout)

    def test_worker_without_a_task_names_the_variable(self):
        run = subprocess.run([TRAIN, '--worker'], capture_output=True, text=True, env=dict(os.environ))
        self.assertEqual(run.returncode, 2)
        self.assertIn('BASE_MODEL_URL', run.stderr)

    def test_worker_trains_by_its_environment(self):
        out = self.work / 'out'
        run = subprocess.run([TRAIN, '--worker'], capture_output=True, text=True, timeout=m.seconds(300), env={
            **os.environ, 'BASE_MODEL_URL': str(self.model), 'TRAIN_DATASET_URL': str(self.data), 'TRAIN_DATASET_FORMAT': 'csv',
            'MODEL_URL': str(out), 'PARAMETERS': '{"epochs": 2, "threads": 1}', 'TRAINING': '{"holdOut": 0.2, "version": "5"}'})
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn('epoch trained', run.stderr)
        self.assertEqual(json.loads((out / 'result.json').read_text())['body']['data']['artifact'], 'model-5')


class OnANode(uploads_test.Node):
    def test_killed_trainer_hands_its_result_to_the_agent(self):
        self.expect(uploads_test.worker('train', 10 * uploads_test.MIB))
        token = self.data / 'workers/default/train/token'
        m.wait_until('a token', token.read_text)
        model, data, out = self.work / 'shapes/3', self.work / 'train.csv', self.work / 'out'
        model.mkdir(parents=True)
        (model / 'model.onnx').write_bytes(mlp(4, 16, 3))
        (model / 'model.yaml').write_text('postprocess: {softmax: {input: scores}}\n')
        table(data, 600)
        environment = {**os.environ, 'BASE_MODEL_URL': str(model), 'TRAIN_DATASET_URL': str(data), 'TRAIN_DATASET_FORMAT': 'csv', 'MODEL_URL': str(out),
                       'PARAMETERS': json.dumps({'epochs': 100, 'batchSize': 2, 'threads': 1, 'optimizer': {'learningRate': 0.1}}),
                       'TRAINING': json.dumps({'holdOut': 0.2, 'checkpointSeconds': 1, 'version': '5'}),
                       'VARDA_WORKER_SOCKET': str(self.data / 'worker/worker.sock'), 'VARDA_WORKER_TOKEN_FILE': str(token)}

        def start():
            with open(self.work / 'train.log', 'a') as log:
                return subprocess.Popen([TRAIN, '--worker'], stdout=log, stderr=log, env=environment)

        process = start()
        try:
            m.wait_until('an epoch', lambda: 'epoch trained' in (self.work / 'train.log').read_text())
        finally:
            process.kill()
            process.wait()
        self.kill()
        process = start()  # no agent answers yet
        try:
            m.wait_until('the run is complete', lambda: (out / 'result.json').exists())
            self.start()
            self.assertEqual(process.wait(timeout=m.seconds(120)), 0, (self.work / 'train.log').read_text())
        finally:
            process.kill()
            process.wait()
        m.wait_until('the file is in the registry', lambda: self.artifact('train', 'model-5').get('state') == 'Uploaded')
        self.assertTrue(self.stored((out / 'model.tar').read_bytes()))
        with tarfile.open(out / 'model.tar') as archive:
            self.assertEqual(archive.extractfile('model.onnx').read(), (out / 'model.onnx').read_bytes())
            self.assertEqual(archive.extractfile('model.yaml').read(), (model / 'model.yaml').read_bytes())
        report = self.varda.get('edgenode', 'line7')['status']['workers'][0]['report']
        self.assertGreater(report['results']['final']['data']['metrics']['accuracy'], 0.9)
        self.assertEqual(start().wait(timeout=m.seconds(120)), 0)  # again: only hands over
        self.assertIn('training was complete before this start', (self.work / 'train.log').read_text())


if __name__ == '__main__':
    unittest.main()
