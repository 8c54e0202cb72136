#!/usr/bin/env python3
"""The table of stages at the end of a run: what each took, beside the budget that keeps a cold run on two cores below 40 minutes.

    python3 scripts/stages.py build/stages.tsv [SECONDS OF THE WHOLE RUN]

A stage beyond its budget gets a mark and changes no exit status: a busy machine is no fault of the change. The change that makes a stage
slower pays for it in the same stage.
"""
import pathlib, sys

BUDGET = {'deps': 120, 'build': 420, 'unit.build': 480, 'unit.run': 300, 'fuzz.build': 60, 'fuzz.run': 90, 'checks.build': 90,
          'checks.run': 180, 'threads.build': 120, 'threads.run': 150, 'e2e.build': 15, 'e2e.run': 360}


def main(path, whole=None):
    rows = [line.split('\t') for line in pathlib.Path(path).read_text().splitlines()]
    budgets = any(name in BUDGET for name, _, _ in rows)
    print('| stage | seconds |%s |' % (' budget, cold |' if budgets else ''))
    print('|---|---|---|%s' % ('---|' if budgets else ''))
    for name, seconds, result in rows:
        budget = BUDGET.get(name)
        over = budget is not None and int(seconds) > budget
        note = result if result != 'ok' else 'over budget' if over else ''
        print('| %s | %s |%s %s |' % (name, seconds, ' %s |' % ('' if budget is None else budget) if budgets else '', note))
    total = int(whole) if whole else sum(int(seconds) for _, seconds, _ in rows)
    sums = ' %d |' % sum(BUDGET.get(name, 0) for name, _, _ in rows) if budgets else ''
    print('| all | %d (%d min) |%s |' % (total, round(total / 60), sums))


if __name__ == '__main__':
    main(*sys.argv[1:])
