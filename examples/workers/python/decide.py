#!/usr/bin/env python3
"""Decides between two models: asks the small one, and the big one if the small one is unsure.

    POST /v2/models/digits/infer    an Open Inference Protocol request, in JSON; the answer of one model
    GET  /healthz                   200

SMALL_URL and BIG_URL are the URLs of the models, as in `status.url` of their InferenceModels.
CONFIDENCE is the lowest top score of the small model that counts as sure (default 0.7). The pod
listens on POD_IP, port LISTEN_PORT. Only Python's standard library is needed.
"""
import http.server, json, math, os, urllib.request

SMALL, BIG = os.environ['SMALL_URL'], os.environ['BIG_URL']
CONFIDENCE = float(os.environ.get('CONFIDENCE', '0.7'))
BODY_BYTES_MAX = 16 << 20
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # models are not behind a proxy


def ask(url, body):
    request = urllib.request.Request(url + '/infer', data=body, headers={'Content-Type': 'application/json'})
    with DIRECT.open(request, timeout=5) as reply:
        return json.load(reply)


def top_score(answer):
    """The largest softmax of the first output."""
    scores = answer['outputs'][0]['data']
    largest = max(scores)
    return 1 / sum(math.exp(s - largest) for s in scores)


def decide(body):
    answer = ask(SMALL, body)
    if top_score(answer) >= CONFIDENCE:
        return dict(answer, parameters={'tier': 'edge'})
    try:
        return dict(ask(BIG, body), parameters={'tier': 'cloud'})
    except OSError:
        return dict(answer, parameters={'tier': 'edge', 'fallback': True})


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def do_GET(self):
        self.send(200 if self.path == '/healthz' else 404, {})

    def do_POST(self):
        length = self.headers.get('Content-Length', '')
        if not length.isdigit() or int(length) > BODY_BYTES_MAX:
            self.close_connection = True
            return self.send(413, {'error': 'a body of at most %d bytes, with Content-Length' % BODY_BYTES_MAX})
        body = self.rfile.read(int(length))
        try:
            self.send(200, decide(body))
        except (OSError, ValueError, KeyError, IndexError) as e:
            self.send(502, {'error': str(e)})

    def send(self, status, value):
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args):
        pass


if __name__ == '__main__':
    address = os.environ.get('POD_IP', '127.0.0.1'), int(os.environ.get('LISTEN_PORT', '8080'))
    http.server.ThreadingHTTPServer(address, Handler).serve_forever()
