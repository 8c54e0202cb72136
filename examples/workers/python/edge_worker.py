#!/usr/bin/env python3
"""An edge worker of a JointInferenceService: a small model answers, and the cloud worker gets the
hard examples.

    POST /infer      an image as bytes, one a pixel -> {"label", "score", "tier", "hard", "version"}
                     and "fallback" if the cloud was asked and did not answer
    GET  /status     the current assignment, and the counts
    GET  /healthz    200

It needs only Python's standard library. docs/guides/workers.md describes the environment, and the
reports to the node's agent.
"""
import http.client, http.server, json, math, os, pathlib, queue, random, signal, socket, sys, threading, time, urllib.parse, uuid

VERSION = '1.0'
BODY_BYTES_MAX = 16 << 20
# includes name resolution, connection and answer
CLOUD_TIMEOUT_S = float(os.environ.get('CLOUD_TIMEOUT_S', '2'))
REPORT_PERIOD_S = 1.0


def log(text, **fields):
    print(json.dumps({'time': time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime()), 'message': text, **fields}), flush=True)


# ---- the model: how bright an image is. Put your own here.

class Model:
    """MODEL_PATH/model.json contains {"labels": [dark, bright], "middle": 128, "spread": 40}. These
    are also the defaults without the file."""

    def __init__(self, path):
        file = pathlib.Path(path or '.') / 'model.json'
        said = json.loads(file.read_text()) if path and file.is_file() else {}
        self.labels = said.get('labels', ['dark', 'bright'])
        self.middle, self.spread = float(said.get('middle', 128)), float(said.get('spread', 40))

    def probabilities(self, image):
        mean = sum(image) / len(image) if image else self.middle
        bright = (1 + math.tanh((mean - self.middle) / self.spread / 2)) / 2
        return [1 - bright, bright]


# ---- the policy: decides which answers are hard. It gets probabilities. Policies for boxes find no
# boxes here, so nothing is hard.

def cross_entropy(p, parameters):
    confidence = 1 + sum(x * math.log(x) for x in p if x > 0) / math.log(len(p))
    return confidence < float(parameters.get('threshold_cross_entropy', '0.5'))


def margin(p, parameters):
    first, second = sorted(p, reverse=True)[:2]
    return first - second < float(parameters.get('threshold_margin', '0.5'))


POLICIES = {
    'CrossEntropy': cross_entropy,
    'Margin': margin,
    'Random': lambda p, parameters: random.random() < float(parameters.get('random_ratio', '0.3')),
    'AlwaysCloud': lambda p, parameters: True, 'CloudOnly': lambda p, parameters: True,
    'NeverCloud': lambda p, parameters: False, 'EdgeOnly': lambda p, parameters: False,
}


# ---- the current work; replaced as a whole when the assignment changes

class Work:
    def __init__(self, model, hard_example_mining, cloud_url):
        self.model_name, self.version, self.path = model.get('name') or '', model.get('version') or '', model.get('path') or ''
        self.model = Model(self.path)
        self.policy = hard_example_mining.get('name') or ''
        self.parameters = {one['key']: one['value'] for one in hard_example_mining.get('parameters') or []}
        self.cloud_url = (cloud_url or '').rstrip('/')
        if self.policy and self.policy not in POLICIES:
            log('this worker has no such policy; nothing is hard', policy=self.policy)

    @staticmethod
    def of_environment(env=os.environ):
        cloud = env.get('CLOUD_URL', '')
        if not cloud and env.get('BIG_MODEL_IP'):
            cloud = 'http://%s:%s' % (env['BIG_MODEL_IP'], env.get('BIG_MODEL_PORT', '5000'))
        return Work({'name': env.get('MODEL_NAME'), 'version': env.get('MODEL_VERSION'), 'path': env.get('MODEL_PATH')},
                    {'name': env.get('HEM_NAME'), 'parameters': json.loads(env.get('HEM_PARAMETERS') or '[]')}, cloud)

    @staticmethod
    def of_assignment(said):
        return Work(said.get('model') or {}, said.get('hardExampleMining') or {}, (said.get('cloud') or {}).get('url'))

    def is_hard(self, probabilities):
        return self.policy in POLICIES and POLICIES[self.policy](probabilities, self.parameters)

    def describe(self):
        return {'model': self.model_name, 'version': self.version, 'path': self.path, 'policy': self.policy, 'parameters': self.parameters,
                'cloud': self.cloud_url}


class Counts:
    """inferenceNumber, hardExampleNumber, uploadCloudNumber since the start."""

    def __init__(self):
        self.changed = threading.Condition()
        self.now = {'inferenceNumber': 0, 'hardExampleNumber': 0, 'uploadCloudNumber': 0}

    def add(self, *names):
        with self.changed:
            self.now = {name: count + (name in names) for name, count in self.now.items()}
            self.changed.notify_all()

    def wait_until(self, ready):
        with self.changed:
            self.changed.wait_for(lambda: ready(self.now))
            return self.now


# ---- the node's agent

class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__('localhost', timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Agent:
    """Reports to the agent and follows the assignment. Without an agent, only the environment
    counts."""

    def __init__(self, worker):
        self.worker, self.instance = worker, uuid.uuid4().hex[:16]
        self.socket, self.token_file = os.environ.get('VARDA_WORKER_SOCKET'), os.environ.get('VARDA_WORKER_TOKEN_FILE')
        self.registered, self.told = False, None  # the last report

    def start(self):
        if not self.socket or not self.token_file:
            return log('there is no agent to ask; the environment counts')
        for job in (self.follow, self.report):
            threading.Thread(target=job, daemon=True).start()

    def ask(self, method, path, body=None, timeout=10):
        # read each time, because the agent may replace the token
        token = pathlib.Path(self.token_file).read_text()
        connection = UnixConnection(self.socket, timeout)
        try:
            connection.request(method, path, body=json.dumps(body) if body is not None else None, headers={'Authorization': 'Bearer ' + token})
            response = connection.getresponse()
            text = response.read()
            return response.status, json.loads(text) if response.status < 300 else text.decode(errors='replace').strip()
        finally:
            connection.close()

    def follow(self):
        revision, pause = None, 1
        while True:
            began = time.monotonic()
            try:
                if revision is None:
                    status, said = self.ask('POST', '/v1/register', {'version': VERSION, 'instance': self.instance, 'capabilities': ['assignment']})
                    if status == 200:
                        self.set_registered(True)
                else:
                    status, said = self.ask('GET', '/v1/assignment?timeoutSeconds=60&after=' + urllib.parse.quote(revision), timeout=90)
                if status != 200:
                    if status == 401:
                        self.set_registered(False)
                    raise ValueError('%d %s' % (status, said))
                if said['revision'] != revision:
                    if said['assignment']:
                        self.worker.take(Work.of_assignment(said['assignment']))
                    revision = said['revision']
                pause = 1
                if time.monotonic() - began > 0.5:
                    continue  # the agent held the request, so no pause is needed
            # after any error the current work continues, and the loop tries again
            except Exception as error:
                log('the agent could not be followed', error=str(error), again_in_s=pause)
                revision = None
            time.sleep(pause)
            pause = min(pause * 2, 30)

    def set_registered(self, registered):
        with self.worker.counts.changed:
            if registered:
                self.told = None  # the agent may have lost the former reports
            self.registered = registered
            self.worker.counts.changed.notify_all()

    def report(self):
        while True:
            now = self.worker.counts.wait_until(lambda now: self.registered and now != self.told)
            try:
                if self.ask('PUT', '/v1/metrics', {'metrics': now})[0] < 300:
                    self.told = now
            except (OSError, ValueError, http.client.HTTPException):
                pass  # the agent is away; the next report has all counts
            time.sleep(REPORT_PERIOD_S)

    def last_report(self):
        if self.registered and self.worker.counts.now != self.told:
            try:
                self.ask('PUT', '/v1/metrics', {'metrics': self.worker.counts.now}, timeout=0.5)
            except (OSError, ValueError, http.client.HTTPException):
                pass


# ---- the worker

class Worker:
    def __init__(self):
        self.work, self.counts = Work.of_environment(), Counts()

    def take(self, work):
        self.work = work
        log('assignment', **work.describe())

    def infer(self, image):
        work = self.work
        p = work.model.probabilities(image)
        best = max(range(len(p)), key=p.__getitem__)
        answer = {'label': work.model.labels[best], 'score': p[best], 'tier': 'edge', 'hard': work.is_hard(p), 'version': work.version}
        if not answer['hard']:
            self.counts.add('inferenceNumber')
            return answer
        try:
            answer.update(self.ask_cloud(work, image), tier='cloud', hard=True)
            self.counts.add('inferenceNumber', 'hardExampleNumber', 'uploadCloudNumber')
        except Exception as error:  # a failure in the cloud must not prevent an answer
            # the label of the small model stays
            answer['fallback'] = str(error) or type(error).__name__
            self.counts.add('inferenceNumber', 'hardExampleNumber')
        return answer

    @staticmethod
    def ask_cloud(work, image):
        if not work.cloud_url:
            raise ValueError('the cloud has no address yet')
        call = CloudCall(work.cloud_url, image)
        threading.Thread(target=call.run, daemon=True).start()
        return call.result()


class CloudCall:
    """One request to the cloud, limited to CLOUD_TIMEOUT_S, even with a slow resolver or server.
    Redirections are errors, like every status but 200."""

    def __init__(self, url, image):
        self.url, self.image = url, image
        self.done, self.lock, self.socket, self.late = queue.SimpleQueue(), threading.Lock(), None, False

    def run(self):
        try:
            self.done.put((self.ask(), None))
        except Exception as error:
            self.done.put((None, error))

    def result(self):
        try:
            answer, error = self.done.get(timeout=CLOUD_TIMEOUT_S)
        except queue.Empty:
            with self.lock:
                self.late = True
                if self.socket is not None:
                    self.end()
            raise TimeoutError('there was no answer within %g s' % CLOUD_TIMEOUT_S) from None
        if error is not None:
            raise error
        return answer

    def end(self):
        try:
            self.socket.shutdown(socket.SHUT_RDWR)  # the reader of the socket stops
        except OSError:
            pass

    def ask(self):
        url = urllib.parse.urlsplit(self.url)
        kind = http.client.HTTPSConnection if url.scheme == 'https' else http.client.HTTPConnection
        connection = kind(url.hostname, url.port, timeout=CLOUD_TIMEOUT_S)
        try:
            connection.connect()
            with self.lock:
                self.socket = connection.sock
                if self.late:
                    return None  # the caller has timed out
            connection.request('POST', url.path + '/infer', body=self.image, headers={'Content-Type': 'application/octet-stream'})
            with connection.getresponse() as response:
                if response.status != 200:
                    raise ValueError('HTTP %d' % response.status)
                said = json.loads(response.read(1 << 20))
        finally:
            connection.close()
        kinds = {'label': str, 'score': (int, float), 'version': str}
        if not isinstance(said, dict) or not all(isinstance(said.get(name), kind) for name, kind in kinds.items()) or not math.isfinite(said['score']):
            raise ValueError("the cloud's answer is none")
        return {name: said[name] for name in kinds}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    timeout = 30  # seconds without data until a connection is closed
    worker = None

    def answer(self, status, body):
        data = (json.dumps(body) + '\n').encode()
        self.send_response(status)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        if self.path == '/healthz':
            return self.answer(200, {'ok': True})
        if self.path == '/status':
            return self.answer(200, {**self.worker.work.describe(), **self.worker.counts.now})
        self.answer(404, {'error': 'there are POST /infer, GET /status, GET /healthz'})

    def do_POST(self):
        length = self.headers.get('Content-Length', '')
        if not length.isdigit() or int(length) > BODY_BYTES_MAX:
            self.close_connection = True
            return self.answer(413 if length.isdigit() else 411, {'error': 'a body of at most %d bytes is expected' % BODY_BYTES_MAX})
        image = self.rfile.read(int(length))
        if self.path != '/infer':
            return self.answer(404, {'error': 'there are POST /infer, GET /status, GET /healthz'})
        self.answer(200, self.worker.infer(image))

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
    worker = Worker()
    agent = Agent(worker)

    def end(*_):
        agent.last_report()
        os._exit(0)  # the other threads only wait for the agent

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    Handler.worker = worker
    server = Server(os.environ.get('POD_IP', ''), int(os.environ.get('LISTEN_PORT', '8080')))
    log('edge worker listens', address=server.server_name, port=server.server_port, **worker.work.describe())
    agent.start()
    server.serve_forever()


if __name__ == '__main__':
    main()
