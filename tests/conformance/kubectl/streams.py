#!/usr/bin/python3
"""Replay the recorded requests of every kubectl, and compare the parts that kubectl reads.

  streams.py BINARY [--only VERSION] [--times N]

BINARY is started like in run.py. streams.jsonl, which record.py writes, has the conversations of
session.py. Its lines are exchanges: a request and the parts of the answer that kubectl reads. The
last lines list the numbers of the exchanges of each kubectl in order. A request that several
versions make alike stands there once. README.md describes variables and comparison. Python 3
standard library only.
"""
import base64, http.client, json, os, re, signal, ssl, subprocess, sys, tempfile, time, urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import run as server_runner  # noqa: E402

FILE = os.path.join(HERE, 'streams.jsonl')
# stands for the tag of the session and has the same length, because protobuf stores lengths
TAG = 'v0x00'
UUID = re.compile(r'[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}')
VOLATILE = [(UUID, '<uid>'), (re.compile(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)'), '<time>'),
            (re.compile(r'127\.0\.0\.1:\d+'), '<address>'), (re.compile(r'hash=\w+'), 'hash=<hash>'),
            (re.compile(r':3\d{4}/'), ':<port>/'), (re.compile(r'^10\.\d+\.\d+\.\d+$'), '<ip>'),
            (re.compile(r'^\d+[smhdy](\d+[smhd])?$'), '<age>')]
# an additional key counts as a difference; elsewhere a newer server may add members
EXACT = {'data', 'labels', 'annotations'}
DISCOVERY = {'APIGroup', 'APIGroupList', 'APIResourceList', 'APIVersions', 'APIGroupDiscoveryList'}
PATIENCE = 20  # seconds for a controller to act in the background


# ---------------------------------------------------------------- variables
def place(path):
    """'deployments' for every path of deployments: the first half of a variable's name."""
    words = urllib.parse.urlsplit(path).path.strip('/').split('/')
    words = words[2:] if words[0] == 'api' else words[3:]
    if len(words) > 2 and words[0] == 'namespaces':
        words = words[2:]
    return words[0] if words else ''


class Variables:
    """The newest uid, resourceVersion, continue token, ETag and hash of all answers so far."""

    def __init__(self):
        self.values = {}

    def put(self, name, value):
        self.values.pop(name, None)
        self.values[name] = value

    def learn(self, path, headers, body):
        plain = urllib.parse.urlsplit(path).path
        if headers.get('ETag'):
            self.put('etag ' + plain, headers['ETag'])
        if not isinstance(body, dict):
            return
        if plain == '/openapi/v3':
            for at in body.get('paths', {}).values():
                url, _, digest = at['serverRelativeURL'].partition('?hash=')
                self.put('hash ' + url, digest)
            return
        self.learn_objects(place(path), body)

    def learn_objects(self, kind, body):
        metadata = body.get('metadata') if isinstance(body.get('metadata'), dict) else {}
        name = kind + ('/' + metadata['name'] if metadata.get('name') else '')
        for member, word in (('uid', 'uid'), ('resourceVersion', 'rv'), ('continue', 'continue')):
            if metadata.get(member):
                self.put('%s %s' % (word, name), metadata[member])
        for item in body.get('items') or []:
            self.learn_objects(kind, item)
        for row in body.get('rows') or []:
            self.learn_objects(kind, row.get('object') or {})

    def fill(self, text):
        return re.sub(r'\$\{([^}]+)\}', lambda m: self.values.get(m.group(1), '<unknown: %s>' % m.group(1)), text)


# ---------------------------------------------------------------- answers
def summary(body):
    """The paths, methods and schema names of an OpenAPI document, without descriptions."""
    found = {'paths': {p: sorted(m for m in v if m in ('get', 'put', 'post', 'delete', 'patch')) for p, v in body.get('paths', {}).items()}}
    found['schemas'] = {n: '' for n in body.get('components', {}).get('schemas', {})}
    return found


def normal(value, key=''):
    if isinstance(value, dict):
        return {normal(k): normal(v, k) for k, v in value.items() if k != 'managedFields'}
    if isinstance(value, list):
        return [normal(v, key) for v in value]
    if key == 'description':
        return '<text>'
    if key in ('resourceVersion', 'continue') and value:
        return '<%s>' % key
    if key == 'nodePort':
        return '<port>'
    if isinstance(value, str):
        for pattern, word in VOLATILE:
            value = pattern.sub(word, value)
    return value


def parse(kind, data):
    if 'json' in kind or data[:1] == b'{':
        try:
            return json.loads(data)
        except ValueError:
            pass
    return data


def answer(status, headers, data, path, session_tag):
    """The compared parts of an answer."""
    kind = headers.get('Content-Type', '')
    out = {'status': status, 'type': kind}
    if headers.get('Warning'):
        out['warning'] = headers.get_all('Warning')
    body = parse(kind, data)
    if isinstance(body, bytes):
        out['body'] = body.decode('utf-8', 'replace') if len(body) < 300 and 'proto' not in kind else 'many bytes'
    elif path.startswith('/openapi/v') and '/' in path[len('/openapi/v3'):]:
        out['body'] = summary(body)
    elif path.startswith('/version'):
        out['body'] = {k: '<text>' for k in body if isinstance(body[k], str)} if isinstance(body, dict) else body
    else:
        out['body'] = normal(body)
    return json.loads(json.dumps(out).replace(session_tag, TAG))


def events(lines, session_tag):
    return json.loads(json.dumps([normal(json.loads(line)) for line in lines]).replace(session_tag, TAG))


def differences(want, got, at='', exact=False, discovery=False):
    """The differences where `got` lacks parts of `want`. Lists are compared whole, except in
    discovery, which may contain more entries."""
    if type(want) is not type(got):
        return ['%s: %s expected, not %s' % (at, short(want), short(got))]
    if isinstance(want, dict):
        discovery = discovery or want.get('kind') in DISCOVERY
        lines = ['%s/%s: unexpected %s' % (at, k, short(got[k])) for k in got if exact and k not in want]
        for k in want:
            if k not in got:
                lines.append('%s/%s: missing, %s expected' % (at, k, short(want[k])))
            else:
                lines += differences(want[k], got[k], at + '/' + k, k in EXACT, discovery)
        return lines
    if isinstance(want, list) and discovery:
        return ['%s: nothing like %s: %s' % (at, short(w), '; '.join(best)) for w in want
                for best in [min((differences(w, g, '', False, True) for g in got), key=len, default=['empty'])] if best]
    if isinstance(want, list):
        lines = [] if len(want) == len(got) else ['%s: %d elements expected, not %d: %s' % (at, len(want), len(got), short(got))]
        for i, (w, g) in enumerate(zip(want, got)):
            lines += differences(w, g, '%s/%d' % (at, i), False, False)
        return lines
    return [] if want == got else ['%s: %s expected, not %s' % (at, short(want), short(got))]


def short(value):
    text = json.dumps(value, sort_keys=True)
    return text if len(text) < 200 else text[:200] + '...'


# ---------------------------------------------------------------- replaying
def load():
    exchanges, plays = [], {}
    for line in open(FILE):
        entry = json.loads(line)
        if 'kubectl' in entry:
            plays[entry['kubectl']] = entry['exchanges']
        else:
            exchanges.append(entry)
    return exchanges, plays


class Server:
    def __init__(self, directory):
        config = open(os.path.join(directory, 'kubeconfig')).read()
        url = next(line.split('server:')[1].strip() for line in config.splitlines() if 'server:' in line)
        self.address = urllib.parse.urlsplit(url).netloc
        self.token = next(t['token'] for t in json.load(open(os.path.join(directory, 'tokens.json'))) if 'system:masters' in t['groups'])
        self.tls = ssl.create_default_context(cafile=os.path.join(directory, 'pki', 'ca.crt'))
        self.kept = None

    def connect(self):
        return http.client.HTTPSConnection(self.address, timeout=PATIENCE, context=self.tls)

    def request(self, connection, method, path, headers, body):
        connection.request(method, path, body, dict(headers, Authorization='Bearer ' + self.token))
        return connection.getresponse()


class Player:
    """One kubectl's conversation."""

    def __init__(self, server, version):
        self.server, self.variables = server, Variables()
        self.tag = 'v' + version.replace('.', 'x')
        self.connection = server.connect()

    def text(self, value):
        return self.variables.fill(value).replace(TAG, self.tag)

    def send(self, connection, e):
        body = e.get('body')
        if isinstance(body, dict):
            body = base64.b64decode(body['base64']).replace(TAG.encode(), self.tag.encode())
        elif body is not None:
            body = self.text(body).encode()
        headers = {k: self.text(v) for k, v in e.get('headers', {}).items()}
        return self.server.request(connection, e['method'], self.text(e['path']), headers, body)

    def watch(self, e):
        connection = self.server.connect()
        try:
            got = self.send(connection, e)
            want = e['answer']
            if (got.status, got.headers.get('Content-Type')) != (want['status'], want['type']):
                return ['%s %s expected, not %s %s' % (want['status'], want['type'], got.status, got.headers.get('Content-Type'))]
            lines = []
            while len(lines) < len(want.get('events', [])):
                line = got.readline()
                if not line:
                    return ['the stream ended after %d of %d events' % (len(lines), len(want['events']))]
                if json.loads(line)['type'] != 'BOOKMARK':
                    lines.append(line)
            return differences(want.get('events', []), events(lines, self.tag))
        except OSError as error:
            return ['%s' % error]
        finally:
            connection.close()

    def exchange(self, e):
        if 'watch=' in e['path']:
            return self.watch(e)
        until = time.monotonic() + PATIENCE
        while True:
            got = self.send(self.connection, e)
            data = got.read()
            wrong = self.judge(e, got, data)
            if not wrong or e['method'] != 'GET' or time.monotonic() > until:
                break
            # a controller has not acted yet; the loop ends after the controller acts
            time.sleep(0.02)
        self.variables.learn(e['path'], got.headers, self.body_of(got, data))
        return wrong

    def body_of(self, got, data):
        body = parse(got.headers.get('Content-Type', ''), data)
        return json.loads(json.dumps(body).replace(self.tag, TAG)) if isinstance(body, dict) else body

    def judge(self, e, got, data):
        want = e['answer']
        if e.get('passing') and got.status in (200, 404):
            return []
        return differences(want, answer(got.status, got.headers, data, e['path'], self.tag))

    def play(self, numbers, exchanges):
        for n in numbers:
            wrong = self.exchange(exchanges[n])
            if wrong:
                e = exchanges[n]
                return 'exchange %d (%s): %s %s\n  %s' % (n, e['step'], e['method'], self.text(e['path']), '\n  '.join(wrong[:8]))
        self.connection.close()
        return ''


def hold(binary, exchanges, plays):
    """Plays every conversation once against a fresh server; returns the problems."""
    problems = []
    with tempfile.TemporaryDirectory(prefix='varda-streams-') as directory:
        with open(os.path.join(directory, 'server.log'), 'w') as log:
            process = server_runner.start([binary], directory, log)
            try:
                for version, numbers in plays.items():
                    problem = Player(Server(directory), version).play(numbers, exchanges)
                    if problem:
                        problems.append('--- kubectl %s, %s' % (version, problem))
            finally:
                process.send_signal(signal.SIGTERM)
                try:
                    code = process.wait(timeout=20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    code = 'no answer to SIGTERM'
                process.stdout.close()
        if code != 0:
            problems.append('the server ended with %s:\n%s' % (code, open(os.path.join(directory, 'server.log')).read()[-2000:]))
    return problems


def main():
    arguments = sys.argv[1:]
    options = {'--only': None, '--times': '1'}
    for name in options:
        if name in arguments:
            at = arguments.index(name)
            options[name] = arguments[at + 1]
            del arguments[at:at + 2]
    if len(arguments) != 1:
        sys.exit(__doc__)
    exchanges, plays = load()
    if options['--only']:
        plays = {options['--only']: plays[options['--only']]}
    for _ in range(int(options['--times'])):
        problems = hold(arguments[0], exchanges, plays)
        if problems:
            sys.exit('\n'.join(problems))
    print('%d versions of kubectl, %d requests, %s times: as recorded' % (len(plays), sum(map(len, plays.values())), options['--times']))


if __name__ == '__main__':
    main()
