#!/usr/bin/env python3
"""Runs the end-to-end tests, several files at a time.

    python3 tests/e2e/run.py                                   every file
    python3 tests/e2e/run.py kill_test.py load_test.Loads      a selection: files, classes, single tests

VARDA_BIN       the directory of the programs (default: build/release/bin)
VARDA_E2E_SLOWNESS  the factor by which programs are slower than release binaries (default 1).
                    Time limits are multiplied by it.

Each file runs as `python3 -m unittest -v` in its own process group and TMPDIR. A file that is much
longer than the average share runs as several parts, one for each class. The longest part starts
first, according to durations.json (`--learn` writes it). A failed part prints its output.

The run ends with 1 after a failed test, a part that hangs, a process that a part leaves behind, or
a skip that tests/expected_skips.txt does not name.
"""
import argparse, collections, concurrent.futures, contextlib, functools, json, os, pathlib, pwd, re, shutil, signal, subprocess, sys, tempfile, threading, time, unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / 'support')]
import machine as m  # noqa: E402
import skips  # noqa: E402

DURATIONS = 'durations.json'  # beside the files: {'file.Class': seconds}, measured on two cores
PARTS_MIN = 40  # seconds: a shorter file always runs whole
END_SECONDS = 5  # grace period for processes that a part has just ended
# tests that need root: cgroups, mounts, other users
NEED_ROOT = {'containerd_test', 'as_user_test'}


# ---- the process of one part
class Recorder(unittest.TextTestResult):
    """Writes one line of JSON when a test ends, so that results survive a part that hangs later."""

    def __init__(self, stream, descriptions, verbosity, to):
        super().__init__(stream, descriptions, verbosity)
        self.to, self.mark, self.failed, self.reason = to, time.monotonic(), False, None

    def startTest(self, test):
        self.begin, self.failed, self.reason = time.monotonic(), False, None
        super().startTest(test)

    def stopTest(self, test):
        super().stopTest(test)
        self.write(test.id(), time.monotonic() - self.begin)

    def write(self, name, seconds):
        now = time.monotonic()
        outcome = 'failed' if self.failed else 'passed' if self.reason is None else 'skipped'
        # `whole` also includes the time since the previous test, for example the set-up of the
        # class.
        self.to.write(json.dumps({'id': name, 'seconds': seconds, 'whole': now - self.mark, 'outcome': outcome, 'reason': self.reason}) + '\n')
        self.to.flush()
        self.mark, self.failed, self.reason = now, False, None

    def fixture(self, test):
        """unittest reports set-up and tear-down of classes and modules only as failures or
        skips."""
        found = re.fullmatch(r'(\w+) \(([\w.]+)\)', test.id()) if not isinstance(test, unittest.TestCase) else None
        if found:
            self.write('%s.%s' % (found[2], found[1]), 0)

    def addError(self, test, error):
        super().addError(test, error)
        self.failed = True
        self.fixture(test)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.failed = True

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.failed = True

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        self.failed |= error is not None

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.reason = reason
        self.fixture(test)


def run_part(directory, path, names):
    sys.path.insert(0, directory)
    with open(path, 'a') as to:
        runner = unittest.TextTestRunner(verbosity=2, resultclass=lambda *words: Recorder(*words, to))
        unittest.main(module=None, argv=['unittest', *names], testRunner=runner)


# ---- the process that a person starts
class Test(collections.namedtuple('Test', 'id seconds whole outcome reason')):
    @property
    def of_class(self):
        """`file.Class`; tests of a file that cannot be imported have no class."""
        return '.'.join(self.id.split('.')[:2])


@functools.cache
def ordinary_user():
    """The user nobody if the caller is root, else None. Root bypasses file permissions, so only the
    parts of NEED_ROOT run as root."""
    if os.geteuid() != 0:
        return None
    unprivileged = pwd.getpwnam('nobody')
    reached = subprocess.run(['/bin/sh', '-c', 'test -r "$0" -a -x "$1"', str(HERE / 'run.py'), m.VARDA], cwd='/', user=unprivileged.pw_uid,
                             group=unprivileged.pw_gid, extra_groups=[])
    if reached.returncode == 0:
        return unprivileged
    print('the user nobody cannot reach %s: the tests run as root' % HERE)
    return None


class Part:
    """The tests of one process: a whole file, or some of its classes or tests."""

    def __init__(self, file, names, seconds):
        self.file, self.names, self.expected = file, names, seconds
        self.tests, self.problems, self.output, self.seconds = [], [], '', 0.0
        self.process, self.lock, self.cancelled = None, threading.Lock(), False

    @property
    def title(self):
        return ' '.join(self.names) if self.names != [self.file] else self.file + '.py'

    @property
    def failed(self):
        return bool(self.problems) or any(t.outcome == 'failed' for t in self.tests)

    def run(self, directory, limit):
        begin = time.monotonic()
        # The path is short because addresses of Unix sockets have at most 108 characters.
        scratch = pathlib.Path(tempfile.mkdtemp(prefix='ve'))
        tests, output = scratch / 'tests', scratch / 'output'
        command = [sys.executable, '-W', 'ignore', str(HERE / 'run.py'), '--part', str(directory), str(tests), *self.names]
        scratch.chmod(0o711)  # some tests run programs as another user, which must be able to enter
        temporary = scratch / 't'
        temporary.mkdir()
        environment, account = {**os.environ, 'TMPDIR': str(temporary)}, {}
        user = None if self.file in NEED_ROOT else ordinary_user()
        if user:
            account = {'user': user.pw_uid, 'group': user.pw_gid, 'extra_groups': []}
            for path in (scratch, temporary):
                os.chown(path, user.pw_uid, user.pw_gid)
            # root's python3 may be in a closed home directory
            command[0] = shutil.which('python3', path='/usr/local/bin:/usr/bin:/bin') or sys.executable
            environment = {name: value for name, value in environment.items() if name != 'KUBECONFIG' and not name.startswith('XDG_')}
            # git refuses the checkout of another user without this setting.
            environment.update(HOME=str(temporary), USER=user.pw_name, LOGNAME=user.pw_name, GIT_CONFIG_COUNT='1',
                               GIT_CONFIG_KEY_0='safe.directory', GIT_CONFIG_VALUE_0='*')
        try:
            with open(output, 'wb') as out, self.lock:
                if self.cancelled:
                    return self
                self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                                                env=environment, **account)
            try:
                code = self.process.wait(limit)
            except subprocess.TimeoutExpired:
                code = None
                self.problems.append('killed after %g s without an end (--limit)' % limit)
            left = {}
            if code is not None:
                with contextlib.suppress(m.Failed):
                    m.wait_until('no process of this part', lambda: self.cancelled or not self.processes(scratch), END_SECONDS)
                left = self.processes(scratch)
            self.kill()
            m.kill_below(scratch)
            if left and not self.cancelled:
                self.problems.append('left processes behind: %s' % '; '.join(sorted(left.values())))
            with contextlib.suppress(FileNotFoundError):
                self.tests = [Test(**json.loads(line)) for line in tests.read_text().splitlines()]
            self.output = output.read_text(errors='replace')
            if code not in (0, None) and not any(t.outcome == 'failed' for t in self.tests):
                self.problems.append('ended with %d' % code)
            if not self.tests:
                self.problems.append('ran no test')
        except Exception as error:  # the other parts must still finish
            self.problems.append(repr(error))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            self.seconds = time.monotonic() - begin
        return self

    def processes(self, scratch):
        """{pid: command} of the processes in the part's group or below its scratch directory."""
        return {**m.processes_below(scratch), **m.processes_of_group(self.process.pid)}

    def kill(self):
        """Kills the process and its group."""
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def cancel(self):
        with self.lock:
            self.cancelled = True
        self.kill()


def classes_of(suite):
    """Names of the classes of a suite, in order. None if a part of the suite did not load."""
    found = []
    for test in suite:
        inner = classes_of(test) if isinstance(test, unittest.TestSuite) else ['%s.%s' % (type(test).__module__, type(test).__qualname__)]
        if inner is None or any(name.startswith('unittest.') for name in inner):
            return None
        found += [name for name in inner if name not in found]
    return found


def parts_of(directory, names, jobs, known):
    """Splits `names` (all files if empty) into parts, the longest first."""
    everything = sum(known.values())
    share = max(PARTS_MIN, everything / (4 * jobs))
    parts = []
    wanted = collections.defaultdict(list)
    for name in names or sorted(path.stem for path in directory.glob('*_test.py')):
        name = pathlib.Path(name).name.removesuffix('.py')
        wanted[name.split('.')[0]].append(name)
    for file, chosen in wanted.items():
        if not (directory / (file + '.py')).exists():
            sys.exit('there is no %s' % (directory / (file + '.py')))
        classes = {name: seconds for name, seconds in known.items() if name.startswith(file + '.')}
        # a part without a known duration may be the longest
        total = sum(classes.values()) if classes else float('inf')
        if chosen != [file] or total <= share:
            parts.append(Part(file, chosen, total))
            continue
        loaded = classes_of(unittest.defaultTestLoader.loadTestsFromName(file))
        if loaded is None or len(loaded) == 1 or not classes:
            parts.append(Part(file, chosen, total))
            continue
        parts += [Part(file, [name], classes.get(name, total)) for name in loaded]
    return sorted(parts, key=lambda part: -part.expected)


def learn(directory, tests, known):
    for name in {t.of_class for t in tests}:
        known[name] = round(sum(t.whole for t in tests if t.of_class == name), 1)
    stems = {path.stem for path in directory.glob('*_test.py')}
    lines = ['  %s: %s' % (json.dumps(k), v) for k, v in sorted(known.items()) if k.split('.')[0] in stems]
    (directory / DURATIONS).write_text('{\n' + ',\n'.join(lines) + '\n}\n')


def report(parts, expected, slowest, took):
    """Prints the end of a run. Returns the problems with skips."""
    tests = [t for part in parts for t in part.tests]
    as_skips = [skips.Test(t.id, t.seconds, (t.reason or '') if t.outcome == 'skipped' else None) for t in tests]
    print()
    skips.print_slowest(as_skips, slowest)
    skips.print_skips(as_skips)
    problems = expected.problems(as_skips)
    for line in problems:
        print(line)
    for part in parts:
        for t in part.tests:
            if t.outcome == 'failed':
                print('failed: %s' % t.id)
        for line in part.problems:
            print('failed: %s: %s' % (part.title, line))
    count = collections.Counter(t.outcome for t in tests)
    # A part that hangs or dies counts as failed, although none of its tests failed.
    count['failed'] += sum(bool(part.problems) for part in parts)
    print('end to end: %d parts took %d s' % (len(parts), took))
    print('%d passed, %d failed, %d skipped' % (count['passed'], count['failed'], count['skipped']), flush=True)
    return problems


def main(arguments):
    if arguments[:1] == ['--part']:
        return run_part(arguments[1], arguments[2], arguments[3:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('names', nargs='*', metavar='NAME', help='kill_test.py, load_test.Loads, load_test.Loads.test_...')
    parser.add_argument('--jobs', type=int, default=3, metavar='N', help='parts at a time (default: %(default)s)')
    parser.add_argument('--limit', type=float, default=600, metavar='SECONDS', help='a longer part is killed (default: %(default)s, times VARDA_E2E_SLOWNESS)')
    parser.add_argument('--slowest', type=int, default=20, metavar='N', help='print the N slowest tests (default: %(default)s)')
    parser.add_argument('--directory', default=str(HERE), help='where the test files are (default: %(default)s)')
    parser.add_argument('--expected', default=str(skips.EXPECTED), metavar='FILE', help='the expected skips (default: %(default)s)')
    parser.add_argument('--learn', action='store_true', help='write the durations of this run to durations.json')
    options = parser.parse_args(arguments)
    if not pathlib.Path(m.VARDA).exists():
        sys.exit('%s does not exist: build it, or set VARDA_BIN' % m.VARDA)
    directory, expected = pathlib.Path(options.directory).resolve(), skips.Expected.load(options.expected)
    sys.path.insert(0, str(directory))
    durations = directory / DURATIONS
    known = json.loads(durations.read_text()) if durations.exists() else {}
    parts = parts_of(directory, options.names, options.jobs, known)
    begin, done = time.monotonic(), []
    def end(*_):
        # a second signal must not leave processes behind
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        sys.exit(143)
    signal.signal(signal.SIGTERM, end)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        try:
            running = [pool.submit(part.run, directory, m.seconds(options.limit)) for part in parts]
            for future in concurrent.futures.as_completed(running):
                part = future.result()
                done.append(part)
                count = collections.Counter(t.outcome for t in part.tests)
                print('%-6s %6.1f s  %s: %s' % ('FAILED' if part.failed else 'ok', part.seconds, part.title, ', '.join(
                    '%d %s' % (count[outcome], outcome) for outcome in ('passed', 'failed', 'skipped') if count[outcome]) or 'no test'), flush=True)
                if part.failed:
                    print(''.join('    %s\n' % line for line in part.output.splitlines() + part.problems), flush=True)
        except BaseException:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
            for part in parts:
                part.cancel()
            raise
    problems = report(done, expected, options.slowest, time.monotonic() - begin)
    if options.learn:
        learn(directory, [t for part in done for t in part.tests], known)
    return 1 if problems or any(part.failed for part in parts) else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
