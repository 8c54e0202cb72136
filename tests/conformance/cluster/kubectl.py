"""kubectl with retries until the deadline: the API server may be away for a while."""
import json, re, subprocess, time

# Permanent errors. Every other error may come from an API server that restarts, a leader that
# changes, or a proxy in between.
FINAL = re.compile(r'\((NotFound|Invalid|MethodNotAllowed|NotAcceptable)\)|is invalid:|error validating|error parsing|unknown (flag|command|shorthand)|'
                   r'^error: (required|unable to read|stat |the path )|no configuration has been provided|no such file or directory', re.M)
# Servers that have just started send these too. They count after several repetitions.
DOUBTFUL = re.compile(r'\((Forbidden|Unauthorized|BadRequest)\)|You must be logged in')
DOUBTS = 6
# An API server that has just started may not serve custom resources yet. The message does not mean
# that an object is missing.
NOT_SERVED = re.compile(r"could not find the requested resource|doesn't have a resource type|no matches for kind")


class Failed(Exception):
    """A step did not hold."""


class Kubectl:
    def __init__(self, program, kubeconfig, context, cache, timeout):
        self.base = [program, '--cache-dir', cache, '--request-timeout=20s']
        if kubeconfig:
            self.base += ['--kubeconfig', kubeconfig]
        if context:
            self.base += ['--context', context]
        self.timeout = timeout
        self.namespace = None
        self.retries = 0

    def __call__(self, *args, input=None, missing=False, timeout=None, everywhere=False):
        """The output of kubectl. With missing=True, None if the object does not exist."""
        command = self.base + ([] if everywhere or not self.namespace else ['--namespace', self.namespace]) + [str(a) for a in args]
        end, pause, doubts = time.monotonic() + (timeout or self.timeout), 0.2, 0
        while True:
            try:
                # A separate session: ^C at the terminal must not end the kubectl of a clean-up.
                done = subprocess.run(command, input=input, capture_output=True, text=True, errors='replace', timeout=90, start_new_session=True)
                code, out, wrong = done.returncode, done.stdout, done.stderr.strip()
            except subprocess.TimeoutExpired:
                code, out, wrong = 1, '', 'no answer within 90 s'
            if code == 0:
                return out
            served = not NOT_SERVED.search(wrong)
            if missing and served and '(NotFound)' in wrong:
                return None
            doubts = doubts + 1 if DOUBTFUL.search(wrong) else 0
            if (FINAL.search(wrong) and served) or doubts >= DOUBTS or time.monotonic() > end:
                raise Failed('kubectl %s: %s' % (' '.join(map(str, args))[:200], wrong[-2000:]))
            self.retries += 1
            time.sleep(pause)
            pause = min(pause * 2, 3)

    def get(self, *args, **kw):
        """The object or list, or None with missing=True."""
        text = self('get', *args, '-o', 'json', **kw)
        return None if text is None else json.loads(text)

    def items(self, *args, **kw):
        return (self.get(*args, **kw) or {}).get('items', [])

    def apply(self, *objects, **kw):
        self('apply', '-f', '-', input=json.dumps({'apiVersion': 'v1', 'kind': 'List', 'items': list(objects)}), **kw)


def wait_until(what, probe, timeout, every=0.3):
    """The first true value of probe(). A missing field is no error. Failed contains `what` and the
    last error."""
    end, last = time.monotonic() + timeout, None
    while True:
        try:
            last = probe()
            if last:
                return last
        except (LookupError, TypeError, ValueError) as e:
            last = repr(e)
        if time.monotonic() > end:
            raise Failed('%s: not within %d s (last seen: %s)' % (what, timeout, str(last)[:600]))
        time.sleep(every)
