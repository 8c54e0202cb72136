#!/usr/bin/env python3
"""What a test run ends with: failures, slowest tests and skips. A skip without a line in
tests/expected_skips.txt fails the run.

    python3 tests/skips.py junit [--slowest N] [--expected FILE] FILE...

reads the files of `ctest --output-junit FILE` and of `--gtest_output=xml:FILE`. It prints the
failed tests with their messages, the skipped tests and the N slowest ones, and exits with 1 if a
skip is not expected. tests/e2e/run.py makes the same check with Expected.
"""
import argparse, collections, fnmatch, os, pathlib, re, sys
import xml.etree.ElementTree as ElementTree

EXPECTED = pathlib.Path(__file__).with_name('expected_skips.txt')
CONDITION = re.compile(r'always|machine|user|(if|unless)=([A-Z][A-Z0-9_]*)')
# The line that gtest prints about a skipped test, in the output of a ctest test.
SKIPPED_LINE = re.compile(r'^\[  SKIPPED \] ([^\s,]+\.[^\s,]+) \(\d+ ms\)$', re.MULTILINE)
FAILURE_LINES_MAX = 30  # of one test

# skipped: the reason; None: the test ran. failure: the messages; None: the test passed.
Test = collections.namedtuple('Test', 'id seconds skipped failure', defaults=(None,))
Line = collections.namedtuple('Line', 'number glob condition reason')


class Expected:
    """The lines of expected_skips.txt, in the format described in that file."""

    def __init__(self, text, environment=os.environ, user=os.geteuid()):
        self.environment, self.user, self.lines = environment, user, []
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.startswith('#'):
                continue
            words = line.split(None, 2)
            if len(words) < 3 or not CONDITION.fullmatch(words[1]):
                raise ValueError('line %d is not "GLOB CONDITION REASON": %s' % (number, line))
            self.lines.append(Line(number, *words))

    @classmethod
    def load(cls, path=EXPECTED):
        return cls(pathlib.Path(path).read_text())

    def allows(self, line):
        if line.condition == 'user':
            return self.user != 0
        kind, name = CONDITION.fullmatch(line.condition).groups()
        return kind is None or (kind == 'if') == bool(self.environment.get(name))

    def problems(self, tests):
        """One line for each problem with the skips of a run. Tests outside of the run are
        ignored."""
        found = []
        for test in tests:
            if test.skipped is not None and not any(self.allows(x) and fnmatch.fnmatchcase(test.id, x.glob) for x in self.lines):
                found.append('unexpected skip: %s: %s' % (test.id, ' '.join(test.skipped.split())))
        for line in self.lines:
            matching = [t for t in tests if fnmatch.fnmatchcase(t.id, line.glob)]
            if line.condition != 'machine' and self.allows(line) and matching and all(t.skipped is None for t in matching):
                found.append('line %d of the expected skips is out of date: %s ran' % (line.number, line.glob))
        return found


def print_failures(tests):
    """A log may be cut in the middle, so that the reader has only this end of it."""
    failed = [t for t in tests if t.failure is not None]
    if failed:
        print('%d failed:' % len(failed))
    for test in failed:
        print('  %s' % test.id)
        for line in test.failure.splitlines()[:FAILURE_LINES_MAX]:
            print('    %s' % line[:300])


def print_slowest(tests, count):
    ran = sorted((t for t in tests if t.skipped is None), key=lambda t: -t.seconds)[:count]
    if ran:
        print('the %d slowest tests:' % len(ran))
    for test in ran:
        print('%9.2f s  %s' % (test.seconds, test.id))


def print_skips(tests):
    skipped = [t for t in tests if t.skipped is not None]
    if skipped:
        print('%d skipped:' % len(skipped))
    for test in skipped:
        print('  %s: %s' % (test.id, ' '.join(test.skipped.split())))


def read_junit(path):
    """The tests of one file: `Suite.Name` for gtest, the test's name for ctest."""
    found = []
    for case in ElementTree.parse(path).getroot().iter('testcase'):
        name, suite, status, note = case.get('name'), case.get('classname'), case.get('status'), case.find('skipped')
        reason = None
        if note is not None or case.get('result') == 'skipped' or status in ('notrun', 'disabled'):
            reason = (note.get('message') or note.text or '').strip() if note is not None else ''
            reason = reason or ('disabled' if status == 'disabled' or case.get('result') == 'suppressed' else 'no reason given')
        output = case.findtext('system-out') or ''
        failure = None
        if status == 'fail':  # of ctest; the end says how a program died
            failure = '\n'.join(output.rstrip().splitlines()[-FAILURE_LINES_MAX:])
        elif case.find('failure') is not None:
            failure = '\n'.join(x.get('message') or x.text or '' for x in case.iter('failure'))
        # ctest writes the test's name into the class too.
        found.append(Test(name if suite in (None, name) else '%s.%s' % (suite, name), float(case.get('time') or 0), reason, failure))
        found += [Test(x, 0.0, 'skipped, says the output of %s' % name) for x in SKIPPED_LINE.findall(output)]
    return found


def merged(tests):
    """One Test for each id: gtest and ctest may both record the same skip."""
    by_id = {}
    for test in tests:
        known = by_id.get(test.id)
        if known is None or (known.seconds, known.skipped is None) < (test.seconds, test.skipped is None):
            by_id[test.id] = test
    return list(by_id.values())


def junit(options):
    tests = []
    for path in options.files:
        tests += read_junit(path)
    tests = merged(tests)
    if not tests:
        print('no test in %s' % ', '.join(options.files), file=sys.stderr)
        return 1
    print_failures(tests)
    print_slowest(tests, options.slowest)
    print_skips(tests)
    problems = Expected.load(options.expected).problems(tests)
    for line in problems:
        print(line)
    return 1 if problems else 0


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command = parser.add_subparsers(required=True).add_parser('junit', help='check the files of ctest and gtest')
    command.add_argument('files', nargs='+', metavar='FILE')
    command.add_argument('--slowest', type=int, default=0, metavar='N', help='print the N slowest tests of all files')
    command.add_argument('--expected', default=str(EXPECTED), metavar='FILE', help='default: %(default)s')
    command.set_defaults(run=junit)
    options = parser.parse_args(arguments)
    return options.run(options)


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
