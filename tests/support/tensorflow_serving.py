"""A stand-in for TensorFlow Serving's model server, after its documentation: REST API and version
directories.

It polls MODEL_BASE_PATH/MODEL_NAME every --file_system_poll_wait_seconds and serves the greatest
number there. The old version serves while a new one loads, and goes once the new one is AVAILABLE.
If the new version does not load, the old one stays. Without a directory, all versions are unloaded.
If the first version does not load, the server exits. A version "loads" unless saved_model.pb begins
with "broken"; it predicts the contents of that file.
"""
import http.server, json, os, pathlib, re, sys, threading, time

FLAGS = dict(a[2:].split('=', 1) for a in sys.argv[1:] if a.startswith('--') and '=' in a)
NAME = os.environ.get('MODEL_NAME', 'model')
BASE = pathlib.Path(os.environ.get('MODEL_BASE_PATH', '/models')) / NAME


class Model:
    def __init__(self):
        self.lock = threading.Lock()
        self.states = {}  # number: [state, error]
        self.serving = None  # (number, prediction)

    def set(self, number, state, error=''):
        with self.lock:
            self.states[number] = [state, error]

    def look(self):
        """One poll; the error of a version that did not load."""
        try:
            numbers = [int(n) for n in os.listdir(BASE) if re.fullmatch(r'[0-9]+', n)]
        except FileNotFoundError:
            numbers = []
        wanted = max(numbers, default=None)
        current = self.serving[0] if self.serving else None
        if wanted == current or (wanted is not None and self.states.get(wanted, [''])[0] == 'END' and self.states[wanted][1]):
            return None  # a failed version is not retried while it is the wanted one
        if wanted is None:
            self.serving = None
            self.set(current, 'END')
            return None
        self.set(wanted, 'LOADING')
        try:
            content = (BASE / str(wanted) / 'saved_model.pb').read_text().strip()
            if content.startswith('broken'):
                raise ValueError('Could not find meta graph def matching supplied tags: { serve }')
        except (OSError, ValueError) as e:
            self.set(wanted, 'END', str(e))
            return str(e)
        self.set(wanted, 'AVAILABLE')
        self.serving = (wanted, content)
        if current is not None:
            self.set(current, 'END')
        return None

    def status(self):
        with self.lock:
            return [{'version': str(n), 'state': s, 'status': {'error_code': 'INVALID_ARGUMENT' if e else 'OK', 'error_message': e}}
                    for n, (s, e) in sorted(self.states.items(), reverse=True)]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    model = None

    def log_message(self, *args):
        pass

    def answer(self, code, body):
        text = json.dumps(body).encode()
        self.send_response(code)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        serving, status = self.model.serving, self.model.status()
        if self.path == '/v1/models/%s' % NAME:
            if not status:
                return self.answer(404, {'error': 'Could not find any versions of model %s' % NAME})
            return self.answer(200, {'model_version_status': status})
        if self.path == '/v1/models/%s/metadata' % NAME and serving:
            return self.answer(200, {'model_spec': {'name': NAME, 'signature_name': '', 'version': str(serving[0])}, 'metadata': {}})
        self.answer(404, {'error': 'Servable not found for request: Latest(%s)' % NAME})

    def do_POST(self):
        self.rfile.read(int(self.headers.get('Content-Length', 0)))
        serving = self.model.serving
        if self.path == '/v1/models/%s:predict' % NAME and serving:
            return self.answer(200, {'predictions': [serving[1]]})
        self.answer(404, {'error': 'Servable not found for request: Latest(%s)' % NAME})


def main():
    model = Handler.model = Model()
    error = model.look()
    if error:
        print('Failed to start server. Error: 1 servable(s) did not become available: ' + error, file=sys.stderr)
        return 1
    server = http.server.ThreadingHTTPServer((os.environ.get('POD_IP', '0.0.0.0'), int(FLAGS['rest_api_port'])), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while True:
        time.sleep(float(FLAGS.get('file_system_poll_wait_seconds', 1)))
        model.look()


if __name__ == '__main__':
    sys.exit(main())
