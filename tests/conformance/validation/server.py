"""An API server named by a kubeconfig: JSON requests over one connection per thread. Python 3
standard library only."""
import base64
import http.client
import json
import os
import re
import ssl
import subprocess
import tempfile
import threading
import urllib.parse


def flow(text):
    """The value of {a: b, c: [d]} at the start of the text, and the rest of the text."""
    text = text.lstrip()
    if text[:1] not in ('{', '['):
        found = re.match(r'"(\\.|[^"\\])*"|\'([^\']|\'\')*\'|(:(?! )|[^,:{}\[\]])*', text).group()
        return scalar(found), text[len(found):].lstrip()
    made, end = ({}, '}') if text[0] == '{' else ([], ']')
    text = text[1:].lstrip()
    while text and not text.startswith(end):
        name, text = flow(text)
        if end == '}':
            made[name], text = flow(text[1:])
        else:
            made.append(name)
        text = text[1:].lstrip() if text.startswith(',') else text
    return made, text[1:].lstrip()


def scalar(text):
    text = text.strip()
    if text[:1] == '"':
        return json.loads(text)
    if text[:1] == "'":
        return text[1:-1].replace("''", "'")
    if text in ('', '~', 'null'):
        return None
    if text[:1] in ('{', '['):
        return flow(text)[0]
    return {'true': True, 'false': False}.get(text, text)


def read_yaml(text):
    """The YAML subset of kubeconfigs: maps and lists, each value on one line; JSON too."""
    if text.lstrip().startswith('{'):
        return json.loads(text)
    lines = []
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith('#') and line.strip() != '---':
            lines.append((len(line) - len(line.lstrip()), line.strip()))

    def block(at, indent):
        if lines[at][1].startswith('- ') or lines[at][1] == '-':
            items = []
            while at < len(lines) and lines[at][0] == indent and lines[at][1].startswith('-'):
                rest = lines[at][1][1:].strip()
                if rest and not re.match(r'[\w.-]+:(\s|$)', rest):
                    items.append(scalar(rest))
                    at += 1
                    continue
                inner = indent + (len(lines[at][1]) - len(rest) if rest else 2)
                if rest:
                    lines[at] = (inner, rest)
                else:
                    at += 1
                    inner = lines[at][0]
                value, at = block(at, inner)
                items.append(value)
            return items, at
        made = {}
        while at < len(lines) and lines[at][0] == indent and not lines[at][1].startswith('- '):
            name, _, rest = lines[at][1].partition(':')
            at += 1
            if rest.strip():
                made[scalar(name)] = scalar(rest)
            elif at < len(lines) and (lines[at][0] > indent or (lines[at][0] == indent and lines[at][1].startswith('-'))):
                made[scalar(name)], at = block(at, lines[at][0])
            else:
                made[scalar(name)] = None
        return made, at

    return block(0, lines[0][0])[0] if lines else {}


class Server:
    """Thread-safe."""

    def __init__(self, kubeconfig, context=None):
        with open(kubeconfig) as file:
            config = read_yaml(file.read())
        self.folder = os.path.dirname(os.path.abspath(kubeconfig))
        named = lambda part, name: next((entry[part[:-1]] or {} for entry in config.get(part) or [] if entry['name'] == name), {})
        chosen = named('contexts', context or config.get('current-context'))
        if not chosen:
            raise SystemExit('%s: no context %s' % (kubeconfig, context or config.get('current-context')))
        cluster, user = named('clusters', chosen.get('cluster')), named('users', chosen.get('user'))
        self.url = urllib.parse.urlsplit(cluster['server'])
        self.tls = None
        if self.url.scheme == 'https':
            self.tls = ssl.create_default_context(cafile=self.file(cluster, 'certificate-authority'))
            if str(cluster.get('insecure-skip-tls-verify')).lower() == 'true':
                self.tls.check_hostname, self.tls.verify_mode = False, ssl.CERT_NONE
        self.headers = {'Accept': 'application/json', 'User-Agent': 'varda-validation'}
        self.log_in(user)
        self.local = threading.local()

    def file(self, entry, name):
        if entry.get(name):
            return os.path.join(self.folder, entry[name])
        if not entry.get(name + '-data'):
            return None
        with tempfile.NamedTemporaryFile(delete=False) as made:
            made.write(base64.b64decode(entry[name + '-data']))
        self.made = getattr(self, 'made', []) + [made.name]
        return made.name

    def log_in(self, user):
        token = user.get('token')
        if user.get('tokenFile'):
            with open(os.path.join(self.folder, user['tokenFile'])) as file:
                token = file.read().strip()
        certificate, key = self.file(user, 'client-certificate'), self.file(user, 'client-key')
        if user.get('exec'):
            plugin = user['exec']
            environment = dict(os.environ, **{one['name']: one['value'] for one in plugin.get('env') or []})
            answer = subprocess.run([plugin['command']] + (plugin.get('args') or []), env=environment, check=True,
                                    capture_output=True, text=True).stdout
            token = json.loads(answer)['status'].get('token')
        if token:
            self.headers['Authorization'] = 'Bearer ' + token
        if certificate:
            self.tls.load_cert_chain(certificate, key)
        for name in getattr(self, 'made', []):
            os.unlink(name)

    def connection(self):
        if getattr(self.local, 'connection', None) is None:
            host, port = self.url.hostname, self.url.port
            self.local.connection = (http.client.HTTPSConnection(host, port, timeout=60, context=self.tls) if self.tls
                                     else http.client.HTTPConnection(host, port, timeout=60))
        return self.local.connection

    def request(self, method, path, body=None, kind='application/json'):
        """(status, the answer as JSON, or as text if it is not JSON)"""
        headers = dict(self.headers)
        if body is not None:
            headers['Content-Type'] = kind
            body = body if isinstance(body, (str, bytes)) else json.dumps(body)
            body = body.encode() if isinstance(body, str) else body
        for again in (True, False):
            connection = self.connection()
            try:
                connection.request(method, self.url.path.rstrip('/') + path, body=body, headers=headers)
                answer = connection.getresponse()
                text = answer.read().decode()
                break
            except (http.client.HTTPException, ConnectionError):  # the idle connection was closed
                connection.close()
                self.local.connection = None
                if not again:
                    raise
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text
