#!/usr/bin/python3
"""Record the requests of every installed kubectl in session.py's session, for streams.py.

  record.py BINARY

BINARY is started once per kubectl, like in run.py, behind a proxy that logs. Versions that are not
installed here keep their recordings. A failed step of the session ends the recording. Python 3
standard library only.
"""
import base64, http.client, http.server, json, os, re, signal, sys, tempfile, threading, urllib.parse

import session
import streams
from streams import server_runner

HEADERS = ('Accept', 'Content-Type', 'If-None-Match', 'Impersonate-User', 'Impersonate-Group')


class Exchange:
    def __init__(self, step, method, path, headers, body):
        self.step, self.method, self.path, self.headers, self.body = step, method, path, headers, body
        self.status, self.answer_headers, self.data, self.lines = 0, None, b'', []
        self.passing = False


class Proxy(http.server.ThreadingHTTPServer):
    """Plain HTTP in front of the server, with the administrator's token, so that kubectl needs no
    TLS."""
    daemon_threads = True

    def __init__(self, server):
        super().__init__(('127.0.0.1', 0), Handler)
        self.upstream, self.log, self.lock, self.step = server, [], threading.Lock(), ''
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *_):
        pass

    def handle_any(self):
        body = self.rfile.read(int(self.headers['Content-Length'])) if self.headers.get('Content-Length') else None
        headers = {h: self.headers[h] for h in HEADERS if self.headers.get(h)}
        e = Exchange(self.server.step, self.command, self.path, headers, body)
        with self.server.lock:
            self.server.log.append(e)
        upstream = self.server.upstream.connect()
        upstream.timeout = None if 'watch=' in self.path else 60
        got = self.server.upstream.request(upstream, self.command, self.path, headers, body)
        e.status, e.answer_headers = got.status, got.headers
        try:
            if 'watch=' in self.path and got.status == 200:
                self.stream(e, got)
            else:
                e.data = got.read()
                self.head(got, {'Content-Length': str(len(e.data))})
                self.wfile.write(e.data)
        except OSError:
            self.close_connection = True
        finally:
            upstream.close()

    def head(self, got, more):
        self.send_response(got.status)
        framing = ('content-length', 'transfer-encoding', 'connection')
        for name, value in [(n, v) for n, v in got.headers.items() if n.lower() not in framing] + list(more.items()):
            self.send_header(name, value)
        self.end_headers()

    def stream(self, e, got):
        self.head(got, {'Transfer-Encoding': 'chunked'})
        self.wfile.flush()
        for line in iter(got.readline, b''):
            if isinstance(e.lines, list):
                e.lines.append(line)
            self.wfile.write(b'%x\r\n%s\r\n' % (len(line), line))
            self.wfile.flush()
        self.wfile.write(b'0\r\n\r\n')

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = handle_any


class Namer:
    """Replaces values that another server would choose differently by variables."""

    def __init__(self, variables, path):
        self.variables, self.place = variables, streams.place(path)

    def name(self, word, value):
        names = [n for n, v in self.variables.values.items() if v == value and n.split(' ')[0] == word]
        if not names:
            sys.exit('%s %s is in a request, but was in no answer' % (word, value))
        # Several variables may have this value. The newest of the same list or kind is used.
        near = [n for n in names if n.split(' ')[1].split('/')[0] == self.place]
        return '${%s}' % (near or names)[-1]

    def request(self, text):
        text = streams.UUID.sub(lambda m: self.name('uid', m.group(0)), text)
        text = re.sub(r'(\\?"resourceVersion\\?": ?\\?")(\d+)', lambda m: m.group(1) + self.name('rv', m.group(2)), text)
        text = re.sub(r'([?&]resourceVersion=)([1-9]\d*)', lambda m: m.group(1) + self.name('rv', m.group(2)), text)
        text = re.sub(r'([?&]continue=)([^&]+)', lambda m: m.group(1) + self.name('continue', urllib.parse.unquote(m.group(2))), text)
        text = re.sub(r'^([^?]*\?hash=)(\w+)', lambda m: m.group(1) + self.name('hash', m.group(2)), text)
        return re.sub(r'([?&]timeoutSeconds=)\d+', r'\g<1>300', text)

    def header(self, name, value):
        return self.name('etag', value) if name == 'If-None-Match' else value


def as_entry(e, variables, tag):
    """The recorded part of an exchange."""
    namer = Namer(variables, e.path)
    entry = {'step': e.step.replace(tag, streams.TAG), 'method': e.method, 'path': namer.request(e.path.replace(tag, streams.TAG)),
             'headers': {k: namer.header(k, v).replace(tag, streams.TAG) for k, v in e.headers.items()}}
    if e.body and 'protobuf' in e.headers.get('Content-Type', ''):
        entry['body'] = {'base64': base64.b64encode(e.body.replace(tag.encode(), streams.TAG.encode())).decode()}
    elif e.body:
        entry['body'] = namer.request(e.body.decode().replace(tag, streams.TAG))
    entry['answer'] = streams.answer(e.status, e.answer_headers, e.data, e.path, tag)
    if 'watch=' in e.path and e.status == 200:
        del entry['answer']['body']
        seen = [line for line in e.lines if json.loads(line)['type'] != 'BOOKMARK']
        entry['answer']['events'] = [] if e.passing else streams.events(seen, tag)
    if e.passing:
        entry['passing'] = True
        entry['answer'] = {k: v for k, v in entry['answer'].items() if k != 'body'}
    return entry


def entries(log, tag):
    """The recorded part of a log: every write, and each read with a new request, answer or
    variable."""
    variables, recorded, known = streams.Variables(), [], {}
    wanted = set()  # versions that a later request names: the reads that returned them stay
    for e in reversed(log):
        e.names = set(wanted)
        wanted |= set(re.findall(r'(?:resourceVersion|continue)=([^&]+)', e.path))
    for e in log:
        entry = as_entry(e, variables, tag)
        before = dict(variables.values)
        body = streams.parse(e.answer_headers.get('Content-Type', ''), e.data)
        if isinstance(body, dict):
            body = json.loads(json.dumps(body).replace(tag, streams.TAG))
        variables.learn(e.path.replace(tag, streams.TAG), e.answer_headers, body)
        fresh = {n: v for n, v in variables.values.items() if before.get(n) != v}
        needed = any('/' in n or v in e.names for n, v in fresh.items())
        key = json.dumps({k: v for k, v in entry.items() if k != 'step'}, sort_keys=True)
        if e.method == 'GET' and not needed and key in known:
            continue
        known[key] = True
        recorded.append(entry)
    return recorded


def hold_session(binary, version, path):
    with tempfile.TemporaryDirectory(prefix='varda-record-') as directory:
        with open(os.path.join(directory, 'server.log'), 'w') as log:
            process = server_runner.start([binary], directory, log)
            try:
                proxy = Proxy(streams.Server(directory))
                config = os.path.join(directory, 'proxied')
                with open(config, 'w') as out:
                    json.dump({'apiVersion': 'v1', 'kind': 'Config', 'current-context': 'c', 'users': [{'name': 'u', 'user': {}}],
                               'contexts': [{'name': 'c', 'context': {'cluster': 'c', 'user': 'u'}}],
                               'clusters': [{'name': 'c', 'cluster': {'server': 'http://127.0.0.1:%d' % proxy.server_port}}]}, out)
                talk = session.Session(version, path, config, directory)
                for s in talk.steps():
                    at = len(proxy.log)
                    proxy.step = s.command.format(**talk.words)
                    wrong = talk.run(s)
                    if wrong:
                        sys.exit(wrong)
                    deleted = False
                    for e in proxy.log[at:]:
                        # During a deletion the object may still exist, or not.
                        e.passing = deleted and e.method == 'GET'
                        e.lines = tuple(e.lines)  # the proxy may read more than kubectl waited for
                        deleted = deleted or e.method == 'DELETE' or e.path.split('?')[0].endswith('/eviction')
                return entries(list(proxy.log), talk.tag)
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait()
                process.stdout.close()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    exchanges, plays = streams.load() if os.path.exists(streams.FILE) else ([], {})
    recorded = {version: [exchanges[n] for n in numbers] for version, numbers in plays.items()}
    for version, path in session.kubectls().items():
        recorded['%d.%d' % version] = hold_session(sys.argv[1], version, path)
        print('kubectl %d.%d: %d requests' % (*version, len(recorded['%d.%d' % version])))
    numbers = {}
    with open(streams.FILE, 'w') as out:
        lines = []
        for version in sorted(recorded, key=lambda v: tuple(map(int, v.split('.')))):
            play = []
            for entry in recorded[version]:
                text = json.dumps(entry, separators=(',', ':'), ensure_ascii=False)
                if text not in numbers:
                    numbers[text] = len(numbers)
                    out.write(text + '\n')
                play.append(numbers[text])
            lines.append(json.dumps({'kubectl': version, 'exchanges': play}, separators=(',', ':')))
        out.write('\n'.join(lines) + '\n')


if __name__ == '__main__':
    main()
