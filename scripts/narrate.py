"""The narration of the demos: numbered steps, each with its output and its duration."""
import contextlib, os, pathlib, shutil, signal, sys, tempfile, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'tests/support'))
import machine as m  # noqa: E402

BOLD, DIM, GREEN, RED, END = ('\033[1m', '\033[2m', '\033[32m', '\033[31m', '\033[0m') if sys.stdout.isatty() else ('',) * 5


class Step:
    number = 0

    def __init__(self, title):
        Step.number += 1
        self.title = title

    def __enter__(self):
        print('\n%s%d. %s%s' % (BOLD, Step.number, self.title, END), flush=True)
        self.begin = time.monotonic()
        return self

    def __exit__(self, kind, error, trace):
        took = time.monotonic() - self.begin
        if error is None:
            print('   %sheld%s in %.2f s' % (GREEN, END, took), flush=True)
        else:
            print('   %sFAILED%s after %.2f s' % (RED, END, took), flush=True)

    @staticmethod
    def say(text):
        for line in str(text).rstrip().splitlines():
            print('   ' + line, flush=True)


def check(condition, what):
    if not condition:
        raise m.Failed(what)


def answered(url, model, images):
    """The version that answers one request, or Failed."""
    c = m.Client(url, model, images)
    c.prepare()
    check(c.one(), 'no answer: %s' % c.samples)
    return c.samples[0][3]


@contextlib.contextmanager
def workplace(prefix):
    """A directory for all files of a demo. At any end of the demo, its files are removed and
    processes below it are killed. Pods outlive their agents, so processes are found by the
    directory instead of the parent. VARDA_DEMO_KEEP keeps the files."""
    work = pathlib.Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield work
    finally:
        for number in STOPS:
            signal.signal(number, signal.SIG_IGN)  # a second signal waits for the clean-up
        m.kill_below(work)
        if os.environ.get('VARDA_DEMO_KEEP'):
            print('files are in %s' % work, file=sys.stderr)
        else:
            shutil.rmtree(work, ignore_errors=True)


STOPS = signal.SIGINT, signal.SIGTERM, signal.SIGHUP


def stop(number, frame):
    raise KeyboardInterrupt(signal.Signals(number).name)


def run(main):
    """Runs the demo as a program: 0 only if every step held. A signal stops it at any time and
    still cleans up."""
    begin = time.monotonic()
    for number in STOPS:
        signal.signal(number, stop)
    try:
        main()
    except KeyboardInterrupt as e:
        print('\nstopped by %s' % e, file=sys.stderr)
        sys.exit(130)
    except m.Failed as e:
        print('\n%sthe demo did not hold: %s%s' % (RED, e, END), file=sys.stderr)
        sys.exit(1)
    print('\n%sAll %d steps held%s in %.1f s.' % (GREEN, Step.number, END, time.monotonic() - begin))
