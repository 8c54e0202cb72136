#!/usr/bin/env python3
"""Plain words: comments, log messages, Markdown and commit subjects follow the rules of CONTRIBUTING.md ("How we write").

    python3 tests/structure/prose.py             every problem as PATH:LINE: TEXT; exit 1 if there is one
    python3 tests/structure/prose.py --count     suspicious lines by folder

Checked are the beginning of each comment, words that hide the subject or the verb, log messages, the width of Markdown, and the
subjects of commits since SUBJECTS_SINCE.
"""
import collections, pathlib, re, subprocess, sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
GIT = ['git', '-c', 'safe.directory=*', '-C', str(ROOT)]  # tests may run as another user than the owner
WIDTH = 100
SUBJECT_WIDTH = 72
SUBJECTS_SINCE = '9dc7553'

# These words leave open which part of the system acts. A comment that begins with one has no subject.
FIRST = re.compile(r'(Of|By|To|What|Who|Whose|How)\b')
HIDING = re.compile(r'\b(tell|tells|telling|told|anew|whoever|whomever|nobody|somebody|goes on|go on|going on|went on|at rest'
                    r'|is none|are none|of today|wish|wishes)\b', re.I)
CPP_COMMENT = re.compile(r'(?:^|\s)//+[!<]*\s?(?P<text>.*)$')
HASH_COMMENT = re.compile(r'^\s*#(?!!)\s?(?P<text>.*)$')
LOG = re.compile(r'\blog::(?:debug|info|warn|error)\(\s*"(?P<text>(?:[^"\\]|\\.)*)"')
CODE = re.compile(r'`[^`]*`|\b[\w.:]+\(\)')  # names in comments
CAPITALS = re.compile(r'[A-Z]\w*[A-Z]')  # HTTP, EdgeNode


def tracked(*patterns):
    listed = subprocess.run([*GIT, 'ls-files', '--', *patterns], capture_output=True, text=True)
    if listed.returncode != 0:
        print('this is no git checkout: nothing is checked')
        sys.exit(77)
    return listed.stdout.split()


def comments(path, pattern):
    """(line number, text, whether a comment begins there)"""
    inside = False
    for number, line in enumerate((ROOT / path).read_text(errors='replace').splitlines(), 1):
        found = pattern.search(line)
        alone = bool(found) and not line[:found.start()].strip()
        if found and not (pattern is CPP_COMMENT and in_string(line, found.start())):
            yield number, found['text'], not (alone and inside)
        inside = alone


def in_string(line, at):
    return line[:at].replace('\\"', '').count('"') % 2 == 1


def code_problems(path):
    pattern = CPP_COMMENT if path.endswith(('.cc', '.h')) else HASH_COMMENT
    for number, text, begins in comments(path, pattern):
        if begins and FIRST.match(text):
            yield number, 'a comment begins with "%s"' % FIRST.match(text)[0]
        word = HIDING.search(CODE.sub('', text))
        if word:
            yield number, 'a comment has the word "%s"' % word[0]
    if pattern is HASH_COMMENT:
        return
    whole = (ROOT / path).read_text(errors='replace')
    for found in LOG.finditer(whole):
        text, number = found['text'], whole.count('\n', 0, found.start()) + 1
        word = HIDING.search(text)
        if word:
            yield number, 'a log message has the word "%s"' % word[0]
        if text[:1].isupper() and not CAPITALS.match(text):
            yield number, 'a log message begins with a capital letter'


def markdown_problems(path):
    code = False
    for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
        if line.lstrip().startswith('```'):
            code = not code
        plain = not code and not line.startswith(('    ', '|')) and ' ' in line.strip()[:WIDTH]
        if plain and len(line) > WIDTH:
            yield number, 'a line of %d columns, more than %d' % (len(line), WIDTH)


def subject_problems():
    subjects = subprocess.run([*GIT, 'log', '--no-merges', '--format=%h %s', SUBJECTS_SINCE + '..HEAD'],
                              capture_output=True, text=True)
    for line in subjects.stdout.splitlines():  # none in a shallow clone
        commit, _, subject = line.partition(' ')
        if len(subject) > SUBJECT_WIDTH:
            yield commit, 'a subject of %d columns, more than %d' % (len(subject), SUBJECT_WIDTH)
        if ';' in subject or ' and ' in subject:
            yield commit, 'a subject with two changes'


def main(arguments):
    problems = []
    for path in tracked('*.cc', '*.h', '*.py', '*.sh', '*.cmake', '*CMakeLists.txt'):
        problems += [(path, *problem) for problem in code_problems(path)]
    for path in tracked('*.md'):
        problems += [(path, *problem) for problem in markdown_problems(path)]
    if arguments == ['--count']:
        counts = collections.Counter('/'.join(path.split('/')[:-1][:3]) for path, _, _ in problems)
        for folder, count in counts.most_common():
            print('%5d  %s' % (count, folder or '.'))
        return 0
    shown = 0
    for path, number, text in problems:
        print('%s:%s: %s' % (path, number, text))
        shown += 1
    for commit, text in subject_problems():
        print('commit %s: %s' % (commit, text))
        shown += 1
    return 1 if shown else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
