#!/usr/bin/env python3
"""The table of stages at the end of a run: duration and budget of each. The budgets keep a cold run
on two cores below 40 minutes.

    python3 scripts/stages.py build/stages.tsv [SECONDS OF THE WHOLE RUN [plain]]

`plain` leaves out the budgets, which are those of .ci/run.

A stage beyond its budget gets a mark and changes no exit status, because a busy machine is no fault
of the change. A change that makes a stage slower must save the time in the same stage.
"""
import pathlib, sys

BUDGET = {'deps': 30, 'build': 420, 'unit.build': 530, 'unit.run': 320, 'fuzz.build': 85, 'fuzz.run': 95, 'checks.build': 95,
          'checks.run': 145, 'threads.build': 190, 'threads.run': 130, 'e2e.build': 10, 'e2e.run': 335}


def main(path, whole=None, kind='budgets'):
    rows = [line.split('\t') for line in pathlib.Path(path).read_text().splitlines()]
    budgets = kind == 'budgets'
    print('| stage | seconds |%s |' % (' budget, cold |' if budgets else ''))
    print('|---|---|---|%s' % ('---|' if budgets else ''))
    for name, seconds, result in rows:
        budget = BUDGET.get(name) if budgets else None
        over = budget is not None and int(seconds) > budget
        note = result if result != 'ok' else 'over budget' if over else ''
        print('| %s | %s |%s %s |' % (name, seconds, ' %s |' % ('' if budget is None else budget) if budgets else '', note))
    total = int(whole) if whole else sum(int(seconds) for _, seconds, _ in rows)
    sums = ' %d |' % sum(BUDGET.get(name, 0) for name, _, _ in rows) if budgets else ''
    print('| all | %d (%d min) |%s |' % (total, round(total / 60), sums))


if __name__ == '__main__':
    main(*sys.argv[1:])
