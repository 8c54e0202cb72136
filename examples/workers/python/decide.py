#!/usr/bin/env python3
"""Decides between two models: asks the small one, and the big one if the small one is unsure.

    POST /v2/models/NAME/infer    an Open Inference Protocol request, in JSON; the answer of one model
    GET  /healthz                 200

Both models have the NAME. SMALL_URL and BIG_URL are their servers, as in `status.url` of the
InferenceModels. The first output of the small model is the probability of each class. CONFIDENCE
is the lowest top probability that counts as sure (default 0.7). The pod listens on POD_IP, port
LISTEN_PORT. Only Python's standard library is needed.
"""
import http.client, http.server, json, os, urllib.error, urllib.request

SMALL, BIG = os.environ['SMALL_URL'], os.environ['BIG_URL']
CONFIDENCE = float(os.environ.get('CONFIDENCE', '0.7'))
BODY_BYTES_MAX = 16 << 20
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # models are not behind a proxy


def ask(server, path, body):
    request = urllib.request.Request(server + path, data=body, headers={'Content-Type': 'application/json'})
    with DIRECT.open(request, timeout=5) as reply:
        return json.load(reply)


def top_probability(answer):
    """Of the sample about which the model is least sure."""
    output = answer['outputs'][0]
    values, classes = output['data'], output['shape'][-1]
    return min(max(values[i:i + classes]) for i in range(0, len(values), classes))


def decide(path, body):
    answer = ask(SMALL, path, body)
    if top_probability(answer) >= CONFIDENCE:
        return dict(answer, parameters={'tier': 'edge'})
    try:
        return dict(ask(BIG, path, body), parameters={'tier': 'cloud'})
    except (OSError, ValueError, http.client.HTTPException):
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
        if not (self.path.startswith('/v2/models/') and self.path.endswith('/infer')):
            return self.send(404, {})
        try:
            self.send(200, decide(self.path, body))
        except urllib.error.HTTPError as e:  # the small model refuses the request
            self.send(e.code, {'error': e.read().decode(errors='replace')})
        except (OSError, LookupError, TypeError, ValueError, http.client.HTTPException) as e:
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
