"""Models with steps before and after the run in model.yaml: a real varda-serve takes pictures and
returns labels."""
import base64, json, pathlib, shutil, struct, sys, tempfile, unittest, urllib.error, urllib.request, zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402

PNGS = [(m.DIGITS / ('png/digit-%d.png' % d)).read_bytes() for d in range(10)]
# a 3 of 64x64 pixels in colour, made by src/codec/testdata/make_images.py
JPEG = (m.ROOT / 'tests/fixtures/digit-3.jpg').read_bytes()
YAML = """
preprocess:
  image: {channels: grey, layout: NHW, resize: {width: 8, height: 8, filter: area}}
postprocess:
  top_k: {input: probabilities, k: 3}
"""


def png_header_of(width, height):
    """A PNG with almost no content; the header claims this size."""
    def chunk(kind, data):
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
    return (b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', width, height, 8, 2, 0, 0, 0)) + chunk(b'IDAT', zlib.compress(bytes(1000))) +
            chunk(b'IEND', b''))


class Transforms(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-transform-'))
        cls.models = cls.work / 'models'
        cls.add('digits', '1', YAML)
        cls.process, address, _ = m.start_serve(cls.work / 'log', '--model-repository', cls.models, '--http', '127.0.0.1:0', '--drain-delay', '0')
        cls.url = 'http://' + address
        m.wait_until('the model serves', lambda: cls.get('/v2/models/digits/ready')[0] == 200)

    @classmethod
    def tearDownClass(cls):
        cls.process.terminate()
        code = cls.process.wait(timeout=m.seconds(120))
        shutil.rmtree(cls.work, ignore_errors=True)
        assert code == 0, 'varda-serve ended with %s' % code

    @classmethod
    def add(cls, model, version, yaml):
        scratch = cls.models / model / ('.new-' + version)
        shutil.copytree(m.DIGITS / 'models/4', scratch)
        (scratch / 'model.yaml').write_text(yaml)
        scratch.rename(cls.models / model / version)

    @classmethod
    def get(cls, path, body=None, headers={}):
        try:
            with m.DIRECT.open(urllib.request.Request(cls.url + path, data=body, headers=headers), timeout=m.seconds(120)) as r:
                return r.status, json.loads(r.read())
        except urllib.error.HTTPError as e:
            return e.code, json.loads(e.read())

    def infer(self, body, **headers):
        status, answer = self.get('/v2/models/digits/infer', body, {k.replace('_', '-'): v for k, v in headers.items()})
        self.assertEqual(status, 200, answer)
        return {o['name']: o for o in answer['outputs']}

    def refused(self, body, **headers):
        status, answer = self.get('/v2/models/digits/infer', body, {k.replace('_', '-'): v for k, v in headers.items()})
        self.assertEqual(status, 400, answer)
        return answer['error']

    def test_picture_in_the_body_gives_the_answer_of_its_pixels(self):
        pixels = m.read_idx(m.DIGITS / 'test-images.idx3-ubyte')[1]
        truth = m.read_idx(m.DIGITS / 'test-labels.idx1-ubyte')[1]
        right = 0
        for digit, png in enumerate(PNGS):
            outputs = self.infer(png, Content_Type='image/png')
            self.assertEqual(list(outputs), ['labels', 'scores'])
            self.assertEqual(outputs['labels']['shape'], [1, 3])
            self.assertEqual(outputs['scores']['data'], sorted(outputs['scores']['data'], reverse=True))
            # Each file is the first held-out image of its digit. The model gets one of them wrong.
            at = list(truth).index(digit) * 64
            own = {'inputs': [{'name': 'images', 'shape': [1, 8, 8], 'datatype': 'FP32', 'data': list(pixels[at:at + 64])}]}
            self.assertEqual(self.infer(json.dumps(own).encode()), outputs)
            right += outputs['labels']['data'][0] == str(digit)
        self.assertEqual(right, 9)

    def test_colour_jpeg_of_another_size_gives_the_same_digit(self):
        self.assertEqual(self.infer(JPEG, Content_Type='image/jpeg')['labels']['data'][0], '3')

    def test_pictures_are_accepted_as_binary_tensors_and_base64(self):
        items = b''.join(struct.pack('<I', len(f)) + f for f in (PNGS[5], JPEG, PNGS[7]))
        head = json.dumps({'inputs': [{'name': 'image', 'shape': [3], 'datatype': 'BYTES', 'parameters': {'binary_data_size': len(items)}}]}).encode()
        outputs = self.infer(head + items, Inference_Header_Content_Length=str(len(head)))
        self.assertEqual(outputs['labels']['data'][::3], ['5', '3', '7'])
        request = {'inputs': [{'name': 'image', 'shape': [2], 'datatype': 'BYTES', 'data': [base64.b64encode(f).decode() for f in (PNGS[0], JPEG)]}],
                   'outputs': [{'name': 'labels'}]}
        outputs = self.infer(json.dumps(request).encode())
        self.assertEqual(list(outputs), ['labels'])
        self.assertEqual(outputs['labels']['data'][::3], ['0', '3'])

    def test_tensors_of_the_model_give_the_same_labels_and_raw_outputs(self):
        shape, pixels = m.read_idx(m.DIGITS / 'test-images.idx3-ubyte')
        own = {'name': 'images', 'shape': [1, 8, 8], 'datatype': 'FP32', 'data': list(pixels[:64])}
        labels = self.infer(json.dumps({'inputs': [own]}).encode())['labels']['data']
        raw = self.infer(json.dumps({'inputs': [own], 'outputs': [{'name': 'probabilities'}]}).encode())['probabilities']['data']
        self.assertEqual(labels, [str(i) for i in sorted(range(10), key=lambda i: -raw[i])[:3]])

    def test_metadata_shows_the_image_input(self):
        about = self.get('/v2/models/digits')[1]
        self.assertEqual(about['inputs'], [{'name': 'image', 'datatype': 'BYTES', 'shape': [-1]}])
        self.assertEqual([o['name'] for o in about['outputs']], ['labels', 'scores'])

    def test_invalid_pictures_are_refused_and_the_server_continues(self):
        self.assertIn('neither a JPEG nor a PNG', self.refused(b'GIF89a', Content_Type='image/jpeg'))
        self.assertIn('20000x20000 pixels', self.refused(png_header_of(20000, 20000), Content_Type='image/png'))
        for whole in (JPEG, PNGS[3]):
            for cut in range(1, len(whole) - 8, 37):
                self.assertTrue(self.refused(whole[:cut], Content_Type='image/jpeg'))
        many = [base64.b64encode(PNGS[0]).decode()] * 300
        self.assertIn('too many', self.refused(json.dumps({'inputs': [{'name': 'image', 'shape': [300], 'datatype': 'BYTES', 'data': many}]}).encode()))
        self.test_colour_jpeg_of_another_size_gives_the_same_digit()

    def test_mismatched_declaration_keeps_the_old_version_serving(self):
        self.add('other', '1', YAML)
        m.wait_until('version 1 serves', lambda: self.get('/v2/models/other/ready')[0] == 200)
        self.add('other', '2', YAML.replace('width: 8', 'width: 9'))

        def failed():
            return [e for e in self.get('/v2/repository/index', b'{}')[1] if e['name'] == 'other' and e['state'] == 'UNAVAILABLE']
        index = m.wait_until('the failure is reported', failed)
        self.assertEqual((index[0]['version'], index[0]['code']), ('2', 'LoadFailed'))
        self.assertIn('preprocess.image.resize.width is 9, but the model\'s input "images" of shape [-1,8,8] takes 8', index[0]['reason'])
        self.assertEqual(self.get('/v2/models/other')[1]['versions'], ['1'])

    def test_policy_reads_tensors_and_the_picture_stays_unchanged(self):
        self.add('joint', '1', YAML)
        m.wait_until('the first tier serves', lambda: self.get('/v2/models/joint/ready')[0] == 200)
        # threshold 0: nothing is hard; 1: everything uncertain is
        for threshold, tier in (('0', 'little'), ('1', 'big')):
            scratch = self.models / 'joint/.joint'
            scratch.write_text(json.dumps({'version': 1, 'service': 'default/joint', 'deadlineMs': 120000, 'inFlightMax': 8, 'tiers': [
                {'name': 'little', 'policy': {'name': 'CrossEntropy', 'parameters': {'threshold_cross_entropy': threshold}}},
                {'name': 'big', 'url': self.url, 'model': 'digits', 'deadlineMs': 120000}]}))
            scratch.rename(self.models / 'joint/joint.json')

            def answered():
                status, answer = self.get('/v2/models/joint/infer', PNGS[5], {'Content-Type': 'image/png'})
                self.assertEqual(status, 200, answer)
                return answer if answer.get('parameters', {}).get('tier') == tier else None
            answer = m.wait_until('%s answers' % tier, answered)
            self.assertEqual([o['name'] for o in answer['outputs']], ['labels', 'scores'])
            self.assertEqual(answer['outputs'][0]['data'][0], '5')
            self.assertEqual(answer['parameters']['hard'], tier == 'big')


if __name__ == '__main__':
    unittest.main()
