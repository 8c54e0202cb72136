"""Reads objects of a cluster like `kubectl get -o json`, over one persistent HTTPS connection per
thread. A kubectl process costs 70-100 ms of CPU, and tests poll many times a second on two
cores."""
import base64, http.client, json, os, pathlib, ssl, threading, urllib.parse

# limit of one answer, which only a hang reaches
SECONDS = 60 * float(os.environ.get('VARDA_E2E_SLOWNESS') or 1)


class Refused(Exception):
    """The server answered with an error. The text is that of kubectl."""


class Unsupported(Exception):
    """The arguments need a real kubectl."""


def query_of(args):
    """(namespace or None for all, selector or None, the other arguments) of `kubectl get`."""
    namespace, selector, words, rest = 'default', None, [], list(map(str, args))
    while rest:
        word = rest.pop(0)
        if word in ('-n', '--namespace') and rest:
            namespace = rest.pop(0)
        elif word in ('-A', '--all-namespaces'):
            namespace = None
        elif word in ('-l', '--selector') and rest:
            selector = rest.pop(0)
        elif word.startswith('-'):
            raise Unsupported(word)
        else:
            words.append(word)
    if not words:
        raise Unsupported('no kind')
    return namespace, selector, words


class Reader:
    """Thread-safe. Each new connection reads the kubeconfig of `varda up` or `varda apiserver`
    again, because a restart may change it."""

    def __init__(self, kubeconfig):
        self.kubeconfig, self.local, self.kinds = pathlib.Path(kubeconfig), threading.local(), {}

    # ---- connections
    def connect(self):
        def field(name):
            return text.split(name + ':')[1].split()[0].strip('"\'')
        text = self.kubeconfig.read_text()
        try:
            server, token = urllib.parse.urlsplit(field('server')), field('token')
            authority = base64.b64decode(field('certificate-authority-data')).decode()
        except IndexError:
            raise OSError('%s is not written yet' % self.kubeconfig)
        context = ssl.create_default_context(cadata=authority)
        return http.client.HTTPSConnection(server.hostname, server.port, timeout=SECONDS, context=context), token

    def close(self):
        """Closes the connection of this thread."""
        connection, _ = self.local.__dict__.pop('connection', (None, None))
        if connection:
            connection.close()

    def request(self, path):
        """(status, answer) of a GET. A persistent connection is replaced once after a failure or a
        refused token."""
        kept = 'connection' in self.local.__dict__
        try:
            if not kept:
                self.local.connection = self.connect()
            connection, token = self.local.connection
            connection.request('GET', path, headers={'Authorization': 'Bearer ' + token, 'Accept': 'application/json'})
            response = connection.getresponse()
            status, text = response.status, response.read()
            if response.will_close:
                self.close()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if not kept or isinstance(error, TimeoutError):
                raise
            return self.request(path)
        if status == 401 and kept:
            self.close()
            return self.request(path)
        return status, json.loads(text)

    def read(self, path):
        status, answer = self.request(path)
        if status != 200:
            raise Refused('Error from server (%s): %s' % (answer.get('reason', status), answer.get('message', answer)))
        return answer

    # ---- kinds
    def discover(self):
        """{name: (prefix of the path, resource)} for every name that kubectl accepts; the first
        group with a name wins."""
        versions = ['/api/v1'] + ['/apis/' + g['preferredVersion']['groupVersion'] for g in self.read('/apis')['groups']]
        found = {}
        for prefix in versions:
            group = prefix.split('/')[2] if prefix.startswith('/apis/') else ''
            for resource in self.read(prefix)['resources']:
                if '/' in resource['name']:
                    continue
                kind = resource['kind'].lower()
                for name in [resource['name'], resource.get('singularName') or kind, kind, *resource.get('shortNames', [])]:
                    found.setdefault(name, (prefix, resource))
                    if group:
                        found.setdefault('%s.%s' % (name, group), (prefix, resource))
        return found

    def kind(self, name):
        """Repeats the discovery for an unknown name, because CRDs may arrive at any time."""
        name = name.lower()
        if name not in self.kinds:
            self.kinds = self.discover()
        if name not in self.kinds:
            raise Refused('error: the server doesn\'t have a resource type "%s"' % name)
        return self.kinds[name]

    # ---- kubectl get
    def get(self, *args):
        """The JSON of `kubectl get ARGS -o json`. Raises Refused, OSError or HTTPException if the
        request fails, Unsupported if only kubectl can do it."""
        namespace, selector, words = query_of(args)
        kinds, names = words[0].split(','), words[1:]
        if '/' in words[0]:
            if names or len(kinds) > 1:
                raise Unsupported(' '.join(words))
            kind, name = words[0].split('/')
            kinds, names = [kind], [name]
        if len(names) > 1 or (names and (len(kinds) > 1 or selector or namespace is None)):
            raise Unsupported(' '.join(words))
        items = []
        for prefix, resource in map(self.kind, kinds):
            path = prefix
            if resource['namespaced'] and namespace is not None:
                path += '/namespaces/' + urllib.parse.quote(namespace)
            path += '/' + resource['name']
            if names:
                return self.read(path + '/' + urllib.parse.quote(names[0]))
            answer = self.read(path + ('?' + urllib.parse.urlencode({'labelSelector': selector}) if selector else ''))
            api = prefix.split('/', 2)[2]
            items += [{'apiVersion': api, 'kind': resource['kind'], **item} for item in answer['items']]
        return {'apiVersion': 'v1', 'kind': 'List', 'items': items}
