"""Trains a model in a pod of a TrainingModel. Needs only Python's standard library.

    from varda_worker import Training

    with Training() as run:
        rows = read(run.dataset)
        for epoch in range(run.parameter('epochs', 5)):
            loss = step(rows)
            run.progress(epoch=epoch + 1, epochs=5, loss=loss)
        save(run.output / 'model.onnx')
        run.finish(run.output / 'model.onnx', metrics={'accuracy': 0.97})

Copy this file beside your program. docs/guides/workers.md describes the API of the node's agent.
Reports are sent by a thread, so that a lost agent never stops the training. An exception inside
the block is reported, and ends the program with 1: the pod starts again.
"""
import hashlib, http.client, json, os, pathlib, socket, sys, threading, time, uuid

VERSION = '1.0'
PIECE = 8 << 20
HISTORY_MAX = 32


class Refused(Exception):
    """The agent refuses a request for good."""


class _Connection(http.client.HTTPConnection):
    """One connection for each request, because the agent closes it after the answer."""

    def __init__(self, path):
        super().__init__('localhost')
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self.path)


class Agent:
    """The worker API. Each call repeats until the agent answers."""

    def __init__(self, env=os.environ):
        self.socket = env.get('VARDA_WORKER_SOCKET', '/var/run/varda/agent/worker.sock')
        self.token_file = env.get('VARDA_WORKER_TOKEN_FILE', '/var/run/varda/worker/token')

    def ask(self, method, path, body=None, **headers):
        """(status, Upload-Offset, answer) of one try. OSError, HTTPException: no answer."""
        headers['Authorization'] = 'Bearer ' + pathlib.Path(self.token_file).read_text().strip()
        connection = _Connection(self.socket)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            text = response.read()
            return response.status, int(response.getheader('Upload-Offset') or 0), json.loads(text) if text.startswith(b'{') else {}
        finally:
            connection.close()

    def send(self, method, path, message, tries=None):
        """Repeats until the agent accepts, at most `tries` times. Refused: it never will."""
        while tries is None or tries > 0:
            try:
                status, _, answer = self.ask(method, path, json.dumps(message))
                if status < 300:
                    return answer
                if status not in (401, 429, 503):
                    raise Refused('the agent answered %d: %s' % (status, answer.get('message')))
            except (OSError, http.client.HTTPException):
                pass
            tries = None if tries is None else tries - 1
            time.sleep(1)
        return None

    def upload(self, path, name):
        """Hands a file over in pieces. The agent keeps it, and sends it to the registry."""
        total, offset = os.path.getsize(path), None
        while True:
            try:
                if offset is None:
                    status, offset, _ = self.ask('HEAD', '/v1/artifacts/' + name)
                with open(path, 'rb') as f:
                    f.seek(offset)
                    piece = f.read(PIECE)
                span = {} if len(piece) == total else {'Content-Range': 'bytes %d-%d/%d' % (offset, offset + len(piece) - 1, total)}
                status, offset, answer = self.ask('PUT', '/v1/artifacts/' + name, piece, **span)
                if status in (200, 201):
                    return answer
                if status in (401, 429, 503):
                    offset = None
                    time.sleep(1)
                elif status != 202 and not (status == 409 and offset):
                    raise Refused('the agent answered %d: %s' % (status, answer.get('message')))
            except (OSError, http.client.HTTPException):
                if not os.path.exists(path):
                    raise
                offset = None
                time.sleep(1)


class Training:
    """One run. `dataset`, `evaluation` and `base_model` are paths, or None."""

    def __init__(self, env=os.environ, agent=None):
        path = lambda name: pathlib.Path(env[name]) if env.get(name) else None  # noqa: E731
        self.dataset, self.dataset_format = path('TRAIN_DATASET_URL'), env.get('TRAIN_DATASET_FORMAT', '')
        self.evaluation, self.base_model = path('EVAL_DATASET_URL'), path('BASE_MODEL_URL')
        self.output = path('MODEL_URL') or pathlib.Path('.')  # outlives the pod: for checkpoints too
        self.test = path('TEST_DATASET_URL')  # of a round of incremental learning: samples held back
        self.models = [pathlib.Path(one) for one in env.get('MODEL_URLS', '').split(';') if one]  # candidate, base
        self.round = {name.lower(): int(env[name]) for name in ('ROUND', 'ATTEMPT') if env.get(name)}
        self.parameters = json.loads(env.get('PARAMETERS') or '{}')
        self.agent = agent or Agent(env)
        self._begin, self._latest, self._history, self._changed = time.time(), None, [], threading.Event()
        self._instance = uuid.uuid4().hex[:12]

    def parameter(self, key, default):
        """The parameter as a value of the default's type."""
        return type(default)(self.parameters[key]) if key in self.parameters else default

    def __enter__(self):
        threading.Thread(target=self._report, daemon=True).start()
        return self

    def __exit__(self, kind, error, trace):
        if kind is None or issubclass(kind, (SystemExit, KeyboardInterrupt)):
            return
        try:
            self.agent.send('PUT', '/v1/results/error', {'data': {'message': ('%s: %s' % (kind.__name__, error))[:1024], 'permanent': False, **self.round}}, tries=3)
        except Refused as refused:
            print(refused, file=sys.stderr)

    def progress(self, epoch=0, epochs=0, step=0, steps=0, loss=None, metrics=None, phase='Training'):
        """The last progress counts; the thread sends it at most once a second."""
        data = {'epoch': epoch, 'epochs': epochs}
        passed = time.time() - self._begin
        if epoch and epochs:
            data['remaining'] = round(passed / epoch * (epochs - epoch), 1)
        if loss is not None:
            data['loss'] = float(loss)
            self._history.append({'epoch': epoch, 'loss': float(loss), 'metrics': metrics or {}})
            self._history = self._history[-HISTORY_MAX:]
            data['history'] = self._history
        if len(json.dumps(data)) > 4000:
            data.pop('history', None)
        self._latest = {'phase': phase, 'step': step or epoch, 'steps': steps or epochs or step, 'data': data}
        self._changed.set()

    def finish(self, path, metrics=None, file=None, format='onnx', **data):
        """Hands the file over and reports the result. Returns once both are on the node's disk."""
        self.progress_phase('Uploading')
        digest = hashlib.sha256()
        with open(path, 'rb') as f:
            for piece in iter(lambda: f.read(1 << 20), b''):
                digest.update(piece)
        name = 'model-' + digest.hexdigest()[:12]
        self.agent.upload(path, name)
        final = {'artifact': name, 'file': file or os.path.basename(path), 'format': format,
                 'metrics': {k: float(v) for k, v in (metrics or {}).items()}, 'seconds': round(time.time() - self._begin, 1), **self.round, **data}
        if self._history:
            final['history'] = self._history
        self.agent.send('PUT', '/v1/results/final', {'data': final})

    def compare(self, metrics, **data):
        """Ends a comparison: each metric is a list, [of the candidate, of the base]."""
        self.agent.send('PUT', '/v1/results/final', {'data': {'metrics': metrics, 'stage': 'Eval', **self.round, **data}})

    def progress_phase(self, phase):
        self._latest = {**(self._latest or {}), 'phase': phase}
        self._changed.set()

    def _report(self):
        try:
            self.agent.send('POST', '/v1/register', {'version': VERSION, 'instance': self._instance})
            while True:
                self._changed.wait()
                self._changed.clear()
                self.agent.send('PUT', '/v1/progress', self._latest, tries=1)
                time.sleep(1)
        except Refused as refused:
            print('progress is not reported: %s' % refused, file=sys.stderr)
