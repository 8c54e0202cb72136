#!/usr/bin/env python3
"""A cloud worker of a JointInferenceService: a better model answers the edge's hard examples.

    POST /infer      an image as bytes, one a pixel -> {"label", "score", "version"}
    GET  /healthz    200

It needs only Python's standard library and listens on BIG_MODEL_BIND_PORT, the port of the Service
that the edge workers call.
"""
import http.server, json, math, os, pathlib, signal, socket, sys, time

BODY_BYTES_MAX = 16 << 20


def log(text, **fields):
    print(json.dumps({'time': time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime()), 'message': text, **fields}), flush=True)


class Model:
    """The edge's model with a sharper border. MODEL_PATH/model.json may contain {"labels",
    "middle", "spread"}. Put your own model here."""

    def __init__(self, path, version):
        file = pathlib.Path(path or '.') / 'model.json'
        said = json.loads(file.read_text()) if path and file.is_file() else {}
        self.labels, self.version = said.get('labels', ['dark', 'bright']), version
        self.middle, self.spread = float(said.get('middle', 128)), float(said.get('spread', 2))

    def answer(self, image):
        mean = sum(image) / len(image) if image else self.middle
        bright = (1 + math.tanh((mean - self.middle) / self.spread / 2)) / 2
        return {'label': self.labels[bright >= 0.5], 'score': max(bright, 1 - bright), 'version': self.version}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    timeout = 30  # seconds without data until a connection is closed
    model = None

    def answer(self, status, body):
        data = (json.dumps(body) + '\n').encode()
        self.send_response(status)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        found = self.path == '/healthz'
        self.answer(200 if found else 404, {'ok': True} if found else {'error': 'there are POST /infer, GET /healthz'})

    def do_POST(self):
        length = self.headers.get('Content-Length', '')
        if not length.isdigit() or int(length) > BODY_BYTES_MAX:
            self.close_connection = True
            return self.answer(413 if length.isdigit() else 411, {'error': 'a body of at most %d bytes is expected' % BODY_BYTES_MAX})
        image = self.rfile.read(int(length))
        if self.path != '/infer':
            return self.answer(404, {'error': 'there are POST /infer, GET /healthz'})
        self.answer(200, self.model.answer(image))

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host, port):
        if ':' in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), Handler)

    def server_bind(self):  # http.server would look up this machine's name
        super(http.server.HTTPServer, self).server_bind()
        self.server_name, self.server_port = self.server_address[:2]

    def handle_error(self, request, client_address):
        log('a connection broke', error=str(sys.exc_info()[1]))


def main():
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    Handler.model = Model(os.environ.get('MODEL_PATH'), os.environ.get('MODEL_VERSION', ''))
    server = Server(os.environ.get('POD_IP', ''), int(os.environ.get('BIG_MODEL_BIND_PORT', '5000')))
    log('cloud worker listens', address=server.server_name, port=server.server_port, model=os.environ.get('MODEL_NAME', ''))
    server.serve_forever()


if __name__ == '__main__':
    main()
