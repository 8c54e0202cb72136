#!/usr/bin/env python3
"""Serves a model of centroid_train.py: POST a JSON list of numbers, get {class, version}."""
import http.server, json, os, pathlib

from centroid_eval import classify

MODEL = json.loads((pathlib.Path(os.environ['MODEL_PATH']) / 'model.json').read_text())


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        features = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        body = json.dumps({'class': classify(MODEL, features), 'version': os.environ['MODEL_VERSION']}).encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


if __name__ == '__main__':
    http.server.ThreadingHTTPServer((os.environ['POD_IP'], int(os.environ.get('LISTEN_PORT', '8080'))), Handler).serve_forever()
