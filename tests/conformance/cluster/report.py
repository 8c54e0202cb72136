"""One line a step: passed, failed with the reason, or skipped with the reason."""
import sys, time

BOLD, DIM, GREEN, RED, YELLOW, END = ('\033[1m', '\033[2m', '\033[32m', '\033[31m', '\033[33m', '\033[0m') if sys.stdout.isatty() else ('',) * 6


class Skipped(Exception):
    """A step that this cluster cannot run, with the reason."""


class Report:
    def __init__(self):
        self.outcomes = {}  # step: 'pass', 'fail', 'skip' or 'off' (not requested)

    def held(self, *steps):
        return all(self.outcomes.get(s) == 'pass' for s in steps)

    def add_step(self, step, outcome, seconds, lines):
        self.outcomes[step] = outcome
        colour = {'pass': GREEN, 'fail': RED, 'skip': YELLOW}.get(outcome, DIM)
        print('%s%-4s%s  %-18s %6.1f s  %s' % (colour, outcome.upper(), END, step, seconds, lines[0] if lines else ''), flush=True)
        for line in lines[1:]:
            self.say(line)

    @staticmethod
    def say(text):
        for line in str(text).rstrip().splitlines():
            print('                               ' + line, flush=True)

    def count(self, outcome):
        return sum(o == outcome for o in self.outcomes.values())

    def summary(self, begin):
        print('%s%d passed, %d failed, %d skipped%s in %.0f s' % (
            BOLD, self.count('pass'), self.count('fail'), self.count('skip'), END, time.monotonic() - begin), flush=True)
        return 1 if self.count('fail') else 3 if self.count('skip') else 0
