"""Hard requests that a server keeps: from an image to a labelled sample, with real processes."""
import json, pathlib, shutil, signal, subprocess, sys, tarfile, tempfile, unittest, urllib.error, urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402

PICTURES = sorted((m.DIGITS / 'png').glob('digit-*.png'))
# The classifier of examples/digits reads pictures with these steps.
STEPS = '''
preprocess: {image: {channels: grey, layout: NHW, resize: {width: 8, height: 8}, scale: 0.0627}}
'''


def post(url, body, **headers):
    with m.DIRECT.open(urllib.request.Request(url, data=body, headers=headers), timeout=m.seconds(60)) as r:
        return json.load(r)


def get(url):
    with m.DIRECT.open(url, timeout=m.seconds(60)) as r:
        return json.load(r)


def samples(*args, check=True):
    done = subprocess.run([m.VARDA, 'samples', *map(str, args)], capture_output=True, text=True, timeout=m.seconds(60))
    if check and done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout if check else done


class Server(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-hard-'))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        self.model, self.samples = self.work / 'models/digits', self.work / 'samples'
        shutil.copytree(m.DIGITS / 'models/4', self.model / '4')
        (self.model / '4/model.yaml').write_text(STEPS)
        self.samples.mkdir()
        self.spool = self.samples / 'digits'

    def settings(self, **more):
        scratch = self.model / '.samples'
        scratch.write_text(json.dumps({'version': 1, **more}))
        scratch.rename(self.model / 'samples.json')

    def start(self):
        self.process, address, _ = m.start_serve(self.work / 'log', '--model-repository', self.model.parent, '--http', '127.0.0.1:0',
                                                 '--samples-directory', self.samples, '--drain-delay', '0')
        self.addCleanup(self.end, signal.SIGKILL)
        self.url = 'http://' + address + '/v2/models/digits'
        m.wait_until('the model serves', lambda: get(self.url + '/ready')['ready'])

    def end(self, how):
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait()

    def infer(self, picture):
        return post(self.url + '/infer', picture.read_bytes(), **{'Content-Type': 'image/png'})

    def reported(self, **expected):
        def probe():
            counts = get(self.url + '/samples')
            return counts if all(counts.get(k) == v for k, v in expected.items()) else None
        return m.wait_until('counts %s' % expected, probe)

    def settled(self, count):
        """The samples, once the server has stopped replacing some by others."""
        looks = [None]

        def probe():
            looks.append(json.loads(samples('ls', '--spool', self.spool, '-o', 'json'))['samples'])
            return looks[-1] if len(looks[-1]) == count and looks[-1] == looks[-2] else None
        return m.wait_until('%d samples that stay' % count, probe, every=0.2)

    def test_hard_images_are_kept_labelled_and_exported(self):
        self.settings(policy={'name': 'AlwaysCloud'}, countMax=8)
        self.start()
        for picture in PICTURES:
            self.infer(picture)
        counts = self.reported(answers=len(PICTURES), hard=len(PICTURES), pending=8)
        self.assertEqual(sum(counts['scores']), len(PICTURES))
        kept = self.settled(8)
        original = {p.read_bytes() for p in PICTURES}
        for facts in kept:
            self.assertIn((self.spool / 'pending' / (facts['id'] + '.png')).read_bytes(), original)
            self.assertGreater(facts['scores']['confidence'], 0.1)
        self.assertIn('CONFIDENCE', samples('ls', '--spool', self.spool))

        # One by a command, one by a file in a folder.
        one, other = kept[0]['id'], kept[1]['id']
        self.assertIn('1 samples labelled good', samples('label', '--spool', self.spool, one, 'good'))
        self.assertTrue((self.spool / 'label/good' / (one + '.png')).exists())
        (self.spool / 'label/bad').mkdir()
        shutil.copy(PICTURES[0], self.spool / 'label/bad/mine.png')
        refused = samples('label', '--spool', self.spool, other, '../../x', check=False)
        self.assertIn("'../../x' is no name of a class", refused.stderr)

        self.assertIn('id:', samples('show', '--spool', self.spool, other))
        sheet = self.work / 'sheet.html'
        samples('show', '--spool', self.spool, '--to', sheet)
        self.assertEqual(sheet.read_text().count('data:image/png;base64,'), 7)
        samples('export', '--spool', self.spool, '--to', self.work / 'all.tar.gz')
        with tarfile.open(self.work / 'all.tar.gz') as archive:
            names = archive.getnames()
        self.assertIn('label/good/%s.png' % one, names)
        self.assertIn('label/bad/mine.png', names)
        self.assertIn('pending/%s.json' % other, names)

        # Room for one more, which a label has made.
        self.infer(PICTURES[0])
        m.wait_until('the ninth sample', lambda: len(json.loads(samples('ls', '--spool', self.spool, '-o', 'json'))['samples']) == 8)
        self.reported(pending=8)

        # A killed server leaves whole samples, and the next one continues.
        self.end(signal.SIGKILL)
        self.assertEqual(len(json.loads(samples('ls', '--spool', self.spool, '-o', 'json'))['samples']), 8)
        self.start()
        self.reported(answers=0, pending=8)
        self.end(signal.SIGTERM)
        self.assertEqual(self.process.returncode, 0)

    def test_server_writes_only_below_its_directory(self):
        """A confined server keeps samples, and cannot create files beside them."""
        self.settings(policy={'name': 'AlwaysCloud'})
        self.start()
        self.infer(PICTURES[0])
        self.reported(pending=1)
        self.assertNotIn('not confined', (self.work / 'log').read_text())
        # Changed settings take effect without a restart.
        self.settings(policy={'name': 'NeverCloud'})
        m.wait_until('other settings', lambda: self.infer(PICTURES[0]) and get(self.url + '/samples')['hard'] == 0)
        (self.model / 'samples.json').unlink()
        m.wait_until('no samples are kept', lambda: self.refused())

    def refused(self):
        try:
            return not get(self.url + '/samples')
        except urllib.error.HTTPError as e:
            return e.code == 404


class OnANode(unittest.TestCase):
    def test_model_of_a_node_keeps_samples_and_reports_them(self):
        work = pathlib.Path(tempfile.mkdtemp(prefix='varda-hard-'))
        self.addCleanup(shutil.rmtree, work, ignore_errors=True)
        (work / 'www').mkdir()
        files = m.FileServer(work / 'www')
        self.addCleanup(files.stop)
        varda = m.Machine(work / 'data', nodes=['edge0=edge'])
        self.addCleanup(varda.close)
        varda.up()
        archive = work / 'www/digits-4.tar.gz'
        entries = [('4', files.url(archive.name), m.pack(varda, '4', archive))]
        wanted = m.inference_model('digits', 'edge', entries, '4', node='edge0')
        settings = {'hardExampleMining': {'name': 'Margin', 'parameters': [{'key': 'threshold_margin', 'value': '0.9'}]},
                    'bytesMax': '1Mi', 'countMax': 12, 'controlShare': 0.05}
        wanted['spec']['samples'] = settings
        varda.kubectl('apply', '-f', '-', input=json.dumps(wanted))
        varda.ready('digits', '4')
        varda.varda('predict', 'digits', '--images', m.DIGITS / 'test-images.idx3-ubyte')

        def reported():
            found = varda.model('digits')['status'].get('samples', {})
            return found if found.get('answers') == 360 and found.get('pending') == 12 else None
        status = m.wait_until('status.samples', reported)
        self.assertEqual(status['version'], '4')
        self.assertGreater(status['hard'], 12)
        self.assertEqual(sum(status['scores']), 360)
        listed = varda.varda('samples', 'ls', 'digits', '--data-dir', work / 'data', '-o', 'json')
        self.assertEqual(len(json.loads(listed)['samples']), 12)

        # A cloud model has no place for samples.
        cloud = m.inference_model('cloudy', 'cloud', entries, '4')
        cloud['spec']['samples'] = {}
        refused = varda.kubectl('apply', '-f', '-', input=json.dumps(cloud), check=False)
        self.assertIn('only servers at the edge keep samples', refused.stderr)

        # The model goes, with all its samples.
        spool = work / 'data/nodes/edge0/data/samples/default/digits'
        self.assertTrue(spool.exists())
        varda.kubectl('delete', 'inferencemodel', 'digits')
        m.wait_until('the samples are gone', lambda: not spool.exists())


if __name__ == '__main__':
    unittest.main()
