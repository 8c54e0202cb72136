"""Malicious or broken input from outside: archives, file servers, interrupted downloads."""
import gzip, hashlib, http.server, io, json, os, pathlib, sys, tarfile, threading, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402

MODEL = (m.DIGITS / 'models/3/model.onnx').read_bytes()


def tar(*members):
    """A .tar.gz of (name, bytes or {attribute: value})."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w:gz') as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
            else:
                for key, value in content.items():
                    setattr(info, key, value)
                archive.addfile(info)
    return out.getvalue()


def link(target):
    return {'type': tarfile.SYMTYPE, 'linkname': target}


ARCHIVES = {  # name: (bytes, reason, text that the message must contain)
    'dotdot': (tar(('model.onnx', MODEL), ('../../escaped', b'x')), 'UnsafeArchive', '..'),
    'absolute': (tar(('model.onnx', MODEL), ('/tmp/varda-escaped', b'x')), 'UnsafeArchive', 'absolute'),
    'linkout': (tar(('model.onnx', MODEL), ('out', link('/etc')), ('out/passwd', b'x')), 'UnsafeArchive', 'link'),
    'device': (tar(('model.onnx', MODEL), ('null', {'type': tarfile.CHRTYPE, 'devmajor': 1, 'devminor': 3})), 'UnsafeArchive', 'device'),
    'twice': (tar(('model.onnx', MODEL), ('model.onnx', b'x')), 'UnsafeArchive', 'twice'),
    'bomb': (tar(('model.onnx', bytes(200 << 20))), 'UnsafeArchive', 'times its size'),
    'noarchive': (gzip.compress(b'hello' * 100), 'UnsafeArchive', ''),
    'nomodel': (tar(('readme.txt', b'nothing here')), 'BadLayout', 'onnx'),
}


class Files(http.server.BaseHTTPRequestHandler):
    """Serves `content`, correctly or not: the first part of the path selects the behaviour."""
    protocol_version = 'HTTP/1.1'
    content, cuts = {}, {}

    def log_message(self, *args):
        pass

    def do_GET(self):
        how, name = self.path.strip('/').split('/')
        data = self.content[name]
        try:
            getattr(self, how)(name, data)
        except OSError:
            self.close_connection = True

    def begin(self, status=200, **headers):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key.replace('_', '-'), value)
        self.end_headers()

    def well(self, name, data):
        self.begin(Content_Length=str(len(data)))
        self.wfile.write(data)

    def endless(self, name, data):
        self.close_connection = True
        self.begin(Connection='close')
        while True:
            self.wfile.write(bytes(1 << 20))

    def short(self, name, data):  # announces more bytes than it sends
        self.close_connection = True
        self.begin(Content_Length=str(len(data) + 1000))
        self.wfile.write(data)

    def page(self, name, data):
        text = b'<!DOCTYPE html><html><body>Please log in</body></html>'
        self.begin(Content_Length=str(len(text)), Content_Type='text/html')
        self.wfile.write(text)

    def loop(self, name, data):
        self.begin(302, Location=self.path, Content_Length='0')

    def cut(self, name, data):
        """Breaks off twice in the middle, and supports ranges."""
        begin = int(self.headers.get('Range', 'bytes=0-').split('=')[1].rstrip('-'))
        self.cuts.setdefault(name, []).append(begin)
        rest = data[begin:]
        headers = {'ETag': '"one"', 'Content_Length': str(len(rest))}
        if begin:
            headers['Content_Range'] = 'bytes %d-%d/%d' % (begin, len(data) - 1, len(data))
        self.begin(206 if begin else 200, **headers)
        if len(self.cuts[name]) <= 2:
            self.wfile.write(rest[:len(rest) // 2])
            self.close_connection = True
        else:
            self.wfile.write(rest)


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *args):  # clients that hang up are expected here
        pass


class Hostile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.varda = m.Machine(nodes=['edge0=edge'])
        cls.addClassCleanup(cls.varda.close)
        Files.content = {name: content for name, (content, _, _) in ARCHIVES.items()}
        for name in ('endless', 'page', 'short', 'loop', 'cut'):
            Files.content[name] = tar(('model.onnx', MODEL), ('pad.bin', os.urandom(1 << 20)))
        cls.server = Server(('127.0.0.1', 0), Files)
        cls.addClassCleanup(cls.server.shutdown)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.varda.up('--archive-bytes-max', str(64 << 20))

    def apply(self, name, how, content, **more):
        url = 'http://127.0.0.1:%d/%s/%s' % (self.server.server_address[1], how, content)
        sha = hashlib.sha256(Files.content[content]).hexdigest()
        self.varda.kubectl('apply', '-f', '-', input=json.dumps(m.inference_model(name, 'edge', [('1', url, sha)], '1', node='edge0', **more)))
        self.addCleanup(self.varda.kubectl, 'delete', 'inferencemodel', name, '--ignore-not-found')

    def failure(self, name):
        def probe():
            last = self.varda.model(name).get('status', {}).get('modelStatus', {}).get('lastFailure')
            return last if last and last.get('reason') else None
        return m.wait_until('a failure of ' + name, probe)

    def test_unsafe_archives_and_layouts_are_refused_with_a_reason(self):
        for name in ARCHIVES:
            self.apply('a-' + name, 'well', name)
        for name, (_, reason, words) in ARCHIVES.items():
            with self.subTest(archive=name):
                found = self.failure('a-' + name)
                self.assertEqual(found['reason'], reason, found)
                self.assertIn(words, found['message'])
                m.wait_until('Ready=False', lambda: self.varda.condition('a-' + name, 'Ready')['status'] == 'False')
        self.assertFalse(os.path.exists('/tmp/varda-escaped'))
        data = self.varda.dir / 'nodes/edge0/data'
        self.assertEqual([str(p) for p in self.varda.dir.rglob('*escaped*')], [])
        refused = {hashlib.sha256(content).hexdigest() for content, reason, _ in ARCHIVES.values() if reason == 'UnsafeArchive'}
        self.assertEqual(refused & {p.name for p in (data / 'artifacts').iterdir()}, set())

    def test_faulty_file_servers_cause_a_clear_failure(self):
        for how, reason, words in (('endless', 'UnsafeArchive', 'larger than'), ('page', 'DownloadFailed', 'HTML'),
                                   ('short', 'DownloadFailed', 'broke'), ('loop', 'DownloadFailed', 'redirects')):
            with self.subTest(server=how):
                self.apply('s-' + how, how, how)
                found = self.failure('s-' + how)
                self.assertEqual(found['reason'], reason, found)
                self.assertIn(words, found['message'])

    def test_broken_download_resumes_at_the_same_byte(self):
        self.apply('cut', 'cut', 'cut', port=8090)
        self.varda.ready('cut', '1')
        begins = Files.cuts['cut']
        self.assertTrue(len(begins) >= 3 and begins[0] == 0 and begins == sorted(set(begins)), begins)


if __name__ == '__main__':
    unittest.main()
