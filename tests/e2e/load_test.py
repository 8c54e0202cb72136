"""The load clients of the other tests: every failed request gives a failed sample, and no client
ends silently."""
import http.server, json, pathlib, sys, threading, unittest, unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import joint as j  # noqa: E402
import machine as m  # noqa: E402

GOOD = {'model_version': '1', 'outputs': [{'name': 'probabilities', 'data': [0.1, 0.9]}], 'parameters': {'tier': 'edge', 'hard': False, 'tier_version': '1'}}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *args):
        pass

    def answer(self, body, status=200):
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        self.answer({'inputs': [{'name': 'images', 'shape': [-1, 2], 'datatype': 'FP32'}]})

    def do_POST(self):
        self.rfile.read(int(self.headers['Content-Length']))
        self.server.released.wait()
        self.answer(*self.server.replies)


class Loads(unittest.TestCase):
    def setUp(self):
        self.server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.server.replies, self.server.released = (GOOD,), threading.Event()
        self.server.handle_error = lambda *_: None  # a client that hung up is expected
        self.server.released.set()
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.addCleanup(self.server.released.set)
        self.url = 'http://127.0.0.1:%d' % self.server.server_address[1]

    def load(self, kind=j.Client):
        load = m.Load(self.url, 'm', [[0, 1]], clients=2, kind=kind)
        self.addCleanup(load.stopping.set)
        return load

    def test_invalid_answers_are_failed_samples(self):
        wrong = {'no output of the name': {'outputs': []}, 'no outputs': {}, 'a list': [], 'no number': {'outputs': [{'name': 'probabilities', 'data': [None, 1]}]},
                 'called is a number': {**GOOD, 'parameters': {'called': 3}}, 'no JSON': b'<html>', 'no UTF-8': b'"\xff"', 'nothing': b''}
        client = j.Client(self.url, 'm', [[0, 1]])
        client.prepare()
        self.addCleanup(client.close)
        for what, replies in wrong.items():
            with self.subTest(what):
                self.server.replies = (replies,)
                self.assertFalse(client.one())
                self.assertTrue(client.samples[-1][2])
        self.server.replies = GOOD, 500
        self.assertFalse(client.one())
        self.assertIn('HTTP 500', client.samples[-1][2])
        self.server.replies = (GOOD,)
        self.assertTrue(client.one(), client.samples[-1])
        self.assertEqual((len(m.failures(client.samples)), j.answers(client.samples)), (len(wrong) + 1, [j.Answer(0, 1, 'edge', False, [], None, '1')]))

    def test_wrong_answers_under_load_are_reported_at_its_end(self):
        load = self.load()
        m.wait_until('good ones', lambda: j.answers(load.samples()))
        self.server.replies = ({},)
        m.wait_until('each client has failed and gone on', lambda: all(len(m.failures(list(c.samples))) > 1 for c in load.clients))
        self.assertTrue(m.failures(load.stop()))

    def test_client_that_ends_early_fails_the_load(self):
        class Mortal(j.Client):
            def one(self):
                raise KeyError('gone')
        load = self.load(Mortal)
        m.wait_until('all have ended', lambda: not any(t.is_alive() for t in load.threads))
        with self.assertRaisesRegex(m.Failed, "(?s)ended by itself.*KeyError: 'gone'"):
            load.stop()

    def test_hanging_request_fails_the_load(self):
        class Patient(j.Client):
            def request(self):
                released.wait()
        released = threading.Event()
        self.addCleanup(released.set)
        load = self.load(Patient)
        with unittest.mock.patch.object(m, 'REQUEST_SECONDS', 0.1), self.assertRaisesRegex(m.Failed, '2 of 2 clients still wait'):
            load.stop()

    def test_unanswered_request_is_a_failed_sample(self):
        self.server.released.clear()
        client = j.Client(self.url, 'm', [[0, 1]])
        client.prepare()
        with unittest.mock.patch.object(m, 'REQUEST_SECONDS', 0.2):
            self.assertFalse(client.one())
        self.assertIn('timed out', client.samples[-1][2])


if __name__ == '__main__':
    unittest.main()
