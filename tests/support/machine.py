"""A whole Varda on this machine, driven from outside, for the demo and the end-to-end tests.

It needs only the Python standard library, the built programs and a real kubectl. Every Machine has
its own data directory and free ports.
"""
import contextlib, functools, http.client, http.server, json, os, pathlib, random, re, shutil, signal, socket, subprocess, sys, tempfile, threading, time, traceback, urllib.parse
import urllib.request

import reader

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get('VARDA_BIN', ROOT / 'build/release/bin'))
VARDA = str(BIN / 'varda')
SERVE = str(BIN / 'varda-serve')
EDGE_WORKER = BIN.parent / 'examples/edge-worker'  # the example in C++; some builds lack it
KUBECTL = os.environ.get('VARDA_KUBECTL', str(ROOT / '.deps/kubectl/usr/bin/kubectl'))
# For servers that run as another user, because root's own Python may be in a closed home directory.
PYTHON = shutil.which('python3', path='/usr/local/bin:/usr/bin:/bin') or sys.executable
DIGITS = ROOT / 'examples/digits'
# ignores the proxy of the environment, for programs of this machine
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
LOOPBACK = ['--allow-source', '127.0.0.0/8']  # for programs that download from a file server of this machine
# the factor by which the programs of VARDA_BIN are slower than release binaries
SLOWNESS = float(os.environ.get('VARDA_E2E_SLOWNESS') or 1)


def engine_built(name):
    """Whether the build has the inference engine; some are optional."""
    return (BIN.parent / ('lib/varda/varda-engine-%s.so' % name)).exists()


def seconds(limit):
    """A time limit that only a hang reaches, scaled for the binaries under test."""
    return limit * SLOWNESS


REQUEST_SECONDS = seconds(60)  # limit of a Client's request, which only a hang reaches


class Failed(Exception):
    """A step did not hold."""


def wait_until(what, probe, timeout=180, every=0.05):
    """The first true value of probe(); Failed names `what` and the last value or error. A probe may
    raise any error, for example for a missing field, until the state is reached. The timeout
    catches hangs: busy cores are many times slower than an idle machine, and slow binaries get more
    time."""
    timeout = seconds(timeout)
    end, last = time.monotonic() + timeout, None
    while time.monotonic() < end:
        try:
            last = probe()
            if last:
                return last
        except (Failed, AssertionError, AttributeError, LookupError, TypeError, ValueError, OSError, http.client.HTTPException, subprocess.SubprocessError) as e:
            last = repr(e)
        time.sleep(every)
    raise Failed('%s: not within %d s (last: %s)' % (what, timeout, str(last)[:2000]))


class Ended(Exception):
    """The awaited program has ended. wait_until() lets this error through, because more waiting is
    useless."""


def running(process, log):
    """True while the program runs; raises Ended with the last lines of its log if the program has
    ended."""
    if process.poll() is not None:
        tail = pathlib.Path(log).read_text(errors='replace').splitlines()[-20:]
        raise Ended('%s: exit %d\n%s' % (' '.join(process.args), process.returncode, '\n'.join(tail)))
    return True


def start_serve(log, *flags, enter=()):
    """Starts a varda-serve with the log file `log`; returns (process, address of its models,
    address of its metrics) once it listens. The process dies with the thread that started it.
    `enter` is a command that executes the one after it."""
    with open(log, 'w') as out:
        process = subprocess.Popen([*map(str, enter), 'setpriv', '--pdeathsig', 'KILL', SERVE, *map(str, flags)],
                                   stdin=subprocess.DEVNULL, stderr=out)
    try:
        found = wait_until('varda-serve listens', lambda: running(process, log) and re.search(
            r'varda-serve listens.*http"?[=:]"?(127\S+?:\d+).*admin"?[=:]"?(127\S+?:\d+)', pathlib.Path(log).read_text()))
    except BaseException:
        process.kill()
        process.wait()
        raise
    return process, found[1], found[2]


def processes_below(directory):
    """{pid: command} of every running process with this data directory as working directory or in
    its command line."""
    # /a/data does not match /a/datasets
    within = re.compile(re.escape(str(directory)) + r'(?![^/\s:=,])').search
    found = {}
    for entry in os.listdir('/proc'):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            with open('/proc/%s/stat' % entry) as f:
                if f.read().rsplit(')', 1)[1].split()[0] == 'Z':
                    continue
            command = open('/proc/%s/cmdline' % entry, 'rb').read().replace(b'\0', b' ').decode(errors='replace').strip()
            environment = open('/proc/%s/environ' % entry, 'rb').read().decode(errors='replace').split('\0')
            cwd = os.readlink('/proc/%s/cwd' % entry)
            ours = cwd.startswith(str(directory) + '/') or any(e.startswith(('VARDA_', 'TMPDIR=')) and within(e) for e in environment)
            if ours or ('varda' in command.split(' ')[0] and within(command)):
                found[int(entry)] = command
    return found


def processes_of_group(group):
    """{pid: command} of the running processes of a process group."""
    found = {}
    for entry in os.listdir('/proc'):
        with contextlib.suppress(OSError, ValueError):
            pid = int(entry)
            with open('/proc/%d/stat' % pid) as f:
                state, _, its = f.read().rsplit(')', 1)[1].split()[:3]
            if state != 'Z' and int(its) == group:
                found[pid] = open('/proc/%d/cmdline' % pid, 'rb').read().replace(b'\0', b' ').decode(errors='replace').strip()
    return found


def kill_below(directory):
    """Sends SIGKILL to every process of a data directory, and to processes started meanwhile;
    returns the processes."""
    victims = {}

    def gone():
        rest = processes_below(directory)
        for pid in rest:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        victims.update(rest)
        return not rest
    wait_until('all processes below %s gone' % directory, gone, 120)
    return victims


def free_port():
    """A free port outside of the range for outgoing connections, so that no connection takes it by
    chance."""
    first, last = map(int, pathlib.Path('/proc/sys/net/ipv4/ip_local_port_range').read_text().split())
    while True:
        port = random.choice([p for p in range(10240, 61000) if not first <= p <= last] or range(first, last))
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(('0.0.0.0', port))
            return port


def self_signed(folder):
    """Makes tls.crt and tls.key for 127.0.0.1 in `folder`, like a user."""
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2',
                    '-subj', '/CN=varda-test', '-addext', 'subjectAltName=IP:127.0.0.1', '-keyout', str(folder / 'tls.key'),
                    '-out', str(folder / 'tls.crt')], check=True, capture_output=True)


class FileServer:
    """A plain HTTP file server over a directory, which can stop and restart on the same port."""

    def __init__(self, directory):
        self.directory, self.port, self.requests, self.server = str(directory), 0, [], None
        # path: Event; until it is set, the second half is sent in drops, so that no client times
        # out
        self.held = {}
        self.start()

    def start(self):
        outer = self

        class Handler(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *args):
                outer.requests.append(self.path)

            def copyfile(self, source, outputfile):
                released = outer.held.get(self.path)
                if released:
                    outputfile.write(source.read(os.fstat(source.fileno()).st_size // 2))
                    while not released.wait(0.5):
                        outputfile.write(source.read(16))
                super().copyfile(source, outputfile)

        self.server = http.server.ThreadingHTTPServer(('127.0.0.1', self.port), functools.partial(Handler, directory=self.directory))
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def url(self, name):
        return 'http://127.0.0.1:%d/%s' % (self.port, name)

    def stop(self):
        if self.server:
            self.server.shutdown()
            self.server.server_close()
            self.server = None


class Machine:
    def __init__(self, data_dir=None, nodes=(), log=None):
        self.own = data_dir is None
        self.dir = pathlib.Path(data_dir or tempfile.mkdtemp(prefix='varda-'))
        self.nodes, self.log = list(nodes), log
        self.kubeconfig = str(self.dir / 'kubeconfig')
        self.frozen = {}  # node: agents stopped by freeze()
        self.reader = reader.Reader(self.kubeconfig)

    # ---- the programs
    def up(self, *extra, timeout=180):
        """Runs `varda up --detach`; returns its output."""
        command = [VARDA, 'up', '--data-dir', str(self.dir), '--listen', '127.0.0.1:0', '--detach']
        for node in self.nodes:
            command += ['--node', node]
        return self.run(command + list(extra), timeout=timeout)

    def down(self, timeout=180):
        return self.run([VARDA, 'down', '--data-dir', str(self.dir)], timeout=timeout)

    def run(self, command, check=True, timeout=300, input=None, env=None):
        environment = dict(os.environ, KUBECONFIG=self.kubeconfig, HOME=str(self.dir), **(env or {}))
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=seconds(timeout), input=input, env=environment)
        if check and done.returncode != 0:
            raise Failed('%s: exit %d\n%s%s' % (' '.join(map(str, command)), done.returncode, done.stdout, done.stderr))
        return done.stdout if check else done

    def kubectl(self, *args, **kw):
        return self.run([KUBECTL, '--cache-dir', str(self.dir / 'kubectl-cache'), *args], **kw)

    def varda(self, *args, **kw):
        return self.run([VARDA, *args], **kw)

    def get(self, *args):
        """The output of `kubectl get ARGS -o json`, without a kubectl process: tests poll with it."""
        try:
            return self.reader.get(*args)
        except reader.Unsupported:
            return json.loads(self.kubectl('get', *args, '-o', 'json'))
        except (reader.Refused, OSError, http.client.HTTPException) as e:
            raise Failed('get %s: %s' % (' '.join(args), e if isinstance(e, reader.Refused) else repr(e)))

    def model(self, name):
        return self.get('inferencemodel', name)

    # ---- state
    def processes(self):
        return processes_below(self.dir)

    def pods(self, selector=None):
        return self.get('pods', *(['-l', selector] if selector else []))['items']

    def nodes_ready(self):
        """Waits until every node is Ready, as after `varda up`."""
        wanted = {node.partition('=')[0] for node in self.nodes} or {'cloud', 'edge0'}

        def ready():
            return {node['metadata']['name'] for node in self.get('nodes')['items'] for c in node.get('status', {}).get('conditions', [])
                    if (c['type'], c['status']) == ('Ready', 'True')}
        wait_until('nodes %s Ready' % ', '.join(sorted(wanted)), lambda: wanted <= ready())

    def condition(self, name, kind):
        for c in self.model(name).get('status', {}).get('conditions', []):
            if c['type'] == kind:
                return c
        return {}

    def ready(self, name, version=None, timeout=180):
        """Waits until the model is Ready, has observed its spec and serves `version`; returns the
        model."""
        def probe():
            m = self.model(name)
            s = m.get('status', {})
            good = any(c['type'] == 'Ready' and c['status'] == 'True' for c in s.get('conditions', []))
            fresh = s.get('observedGeneration') == m['metadata']['generation']
            return m if good and fresh and s.get('url') and (version is None or s.get('servingVersion') == version) else None
        return wait_until('InferenceModel %s Ready%s' % (name, ' with version ' + version if version else ''), probe, timeout)

    def kill_everything(self):
        """Sends SIGKILL to every process of this machine, at once."""
        return kill_below(self.dir)

    def freeze(self, node):
        """Takes a node away until thaw(): its agent is stopped, so that no pod restarts, and its
        pods are killed."""
        below = str(self.dir / 'nodes' / node)
        for pid, command in self.processes().items():
            if ' agent ' in command and node in command.split():
                os.kill(pid, signal.SIGSTOP)
                self.frozen.setdefault(node, []).append(pid)
        if node not in self.frozen:
            raise Failed('no agent of node %s runs' % node)
        for pid in set(processes_below(below)) - set(self.frozen[node]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def thaw(self, node):
        for pid in self.frozen.pop(node, []):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def close(self):
        for node in list(self.frozen):
            self.thaw(node)
        self.reader.close()
        with contextlib.suppress(Exception):
            self.down()
        with contextlib.suppress(Exception):
            if self.processes():
                self.kill_everything()
        if self.own:
            import shutil
            shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if error is not None and not isinstance(error, KeyboardInterrupt):
            self.show_logs()
        self.close()

    def show_logs(self, lines=40):
        for path in sorted(self.dir.glob('logs/*.log')) + sorted(self.dir.glob('nodes/*/agent.log')) + \
                sorted(self.dir.glob('nodes/*/data/pods/*/*.log')):
            with contextlib.suppress(OSError):
                text = path.read_text(errors='replace').splitlines()[-lines:]
                print('--- last lines of %s' % path, *text, sep='\n', file=sys.stderr)


def inference_model(name, layer, versions, target, node=None, port=8080, replicas=1, **more):
    """The manifest in the form of the README. versions: [(version, url, sha256)]"""
    spec = {'modelName': name, 'deployToLayer': layer, 'frameworkType': 'onnx', 'targetVersion': target, 'servingPort': port, 'replicas': replicas,
            'manifest': [{'version': v, 'downloadURL': u, 'sha256sum': s} for v, u, s in versions]}
    if node:
        spec['nodeName'] = node
    spec.update(more)
    return {'apiVersion': 'ai.kubeedge.io/v1alpha1', 'kind': 'InferenceModel', 'metadata': {'name': name}, 'spec': spec}


def pack(machine, version, out):
    """`varda pack` of an example version; returns its sha256."""
    text = machine.varda('pack', DIGITS / 'models' / version, '--version-name', version, '-o', out)
    for line in text.splitlines():
        if 'sha256sum' in line:
            return line.split('sha256sum:')[1].split(',')[0].strip(" '\"}")
    raise Failed('varda pack printed no sha256sum:\n' + text)


def read_idx(path):
    """An IDX file (the format of the MNIST database): (shape, bytes)."""
    data = pathlib.Path(path).read_bytes()
    rank = data[3]
    shape = [int.from_bytes(data[4 + 4 * i:8 + 4 * i], 'big') for i in range(rank)]
    return shape, data[4 + 4 * rank:]


class Client:
    """Sends inference requests over one keep-alive connection and remembers how each went."""

    def __init__(self, url, model, images):
        self.address, self.model, self.images = urllib.parse.urlsplit(url).netloc, model, images
        self.connection, self.at = None, 0
        self.samples = []  # (time, seconds, error or None, version)

    def connect(self):
        return http.client.HTTPConnection(self.address, timeout=REQUEST_SECONDS)

    def headers(self):
        """Further headers of each request."""
        return {}

    def metadata(self):
        c = self.connect()
        c.request('GET', '/v2/models/%s' % self.model, headers=self.headers())
        r = c.getresponse()
        body = r.read()
        c.close()
        if r.status != 200:
            raise Failed('metadata: HTTP %d %s' % (r.status, body[:200]))
        return json.loads(body)

    def prepare(self):
        first = self.metadata()['inputs'][0]
        shape = [1] + [d for d in first['shape'][1:]]
        self.bodies = [json.dumps({'inputs': [{'name': first['name'], 'shape': shape, 'datatype': first['datatype'],
                                               'data': [float(v) for v in image]}]}) for image in self.images]

    def close(self):
        """Closes the connection; the next request opens a new one."""
        if self.connection:
            self.connection.close()
        self.connection = None

    def read(self, answer):
        """The recorded part of an answer."""
        return answer.get('model_version')

    def request(self):
        """Sends one request; returns the value of read() for the answer."""
        if self.connection is None:
            self.connection = self.connect()
        self.connection.request('POST', '/v2/models/%s/infer' % self.model, body=self.bodies[self.at % len(self.bodies)],
                                headers={'Content-Type': 'application/json', **self.headers()})
        r = self.connection.getresponse()
        body = r.read()
        if r.will_close:
            self.close()
        if r.status != 200:
            raise Failed('HTTP %d %s' % (r.status, body[:200]))
        return self.read(json.loads(body))

    def one(self):
        """Sends one request; True after an answer 200 that read() accepts. Every other outcome is
        recorded as a failed sample."""
        begin, error, version = time.monotonic(), None, None
        try:
            version = self.request()
        except Exception as e:
            error = str(e) if isinstance(e, Failed) else repr(e)
            if not isinstance(e, Failed):
                self.close()
        self.at += 1
        self.samples.append((begin, time.monotonic() - begin, error, version))
        return error is None


class Load:
    """Client threads that keep sending until stopped."""

    def __init__(self, url, model, images, clients=2, kind=Client):
        self.stopping, self.died = threading.Event(), []
        self.clients = [kind(url, model, images) for _ in range(clients)]
        for c in self.clients:
            c.prepare()
        self.threads = [threading.Thread(target=self.work, args=(c,), daemon=True) for c in self.clients]
        for t in self.threads:
            t.start()

    def work(self, client):
        try:
            while not self.stopping.is_set():
                client.one()
        except BaseException:
            self.died.append(traceback.format_exc())

    def stop(self):
        """Stops the clients; returns all samples. Failed if a client ended early or still waits
        after every timeout, because neither leaves a failed sample."""
        self.stopping.set()
        end = time.monotonic() + 2 * REQUEST_SECONDS
        for t in self.threads:
            t.join(max(0, end - time.monotonic()))
        if self.died:
            raise Failed('a client ended by itself:\n' + self.died[0])
        if hung := sum(t.is_alive() for t in self.threads):
            raise Failed('%d of %d clients still wait for an answer after %d s' % (hung, len(self.threads), 2 * REQUEST_SECONDS))
        return self.samples()

    def answered(self, version):
        """Waits until this version has answered a request from every client, sent from now on."""
        since = time.monotonic()
        wait_until('answers of version ' + version, lambda: all(
            any(s[0] >= since and s[3] == version for s in list(c.samples)) for c in self.clients))

    def samples(self, since=0, until=float('inf')):
        return sorted((s for c in self.clients for s in list(c.samples) if since <= s[0] < until), key=lambda s: s[0])


def failures(samples):
    return [s for s in samples if s[2]]


def percentile(samples, p):
    values = sorted(s[1] for s in samples)
    return values[min(len(values) - 1, int(len(values) * p / 100))] if values else float('nan')
