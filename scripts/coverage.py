#!/usr/bin/env python3
"""Sums llvm-cov's summary by room, without tests and their fakes; beside an earlier table it names the rooms that lost lines."""
import collections, json, pathlib, sys


def main(summary, table, earlier=None):
    root = pathlib.Path(__file__).resolve().parents[1]
    lines, covered = collections.Counter(), collections.Counter()
    for entry in json.loads(pathlib.Path(summary).read_text())['data'][0]['files']:
        try:
            path = pathlib.Path(entry['filename']).resolve().relative_to(root)
        except ValueError:
            continue  # a header of the system
        if path.parts[0] not in ('src', 'apps', 'plugins') or path.name.endswith('_test.cc') or 'testing' in path.parts:
            continue
        room = path.parts[1] if path.parts[0] == 'src' else '/'.join(path.parts[:2])
        lines[room] += entry['summary']['lines']['count']
        covered[room] += entry['summary']['lines']['covered']
    before = {}
    if earlier:
        before = {row.split('\t')[0]: row.split('\t') for row in pathlib.Path(earlier).read_text().splitlines()}
    pathlib.Path(table).write_text(''.join('%s\t%d\t%d\n' % (room, covered[room], lines[room]) for room in sorted(lines)))
    lost = []
    print('| room | lines run | of | share |%s' % (' before |' if before else ''))
    print('|---|---|---|---|%s' % ('---|' if before else ''))
    for room in sorted(lines):
        share = 100.0 * covered[room] / lines[room]
        cells = '| %s | %d | %d | %.1f %% |' % (room, covered[room], lines[room], share)
        if room in before:
            old = 100.0 * int(before[room][1]) / int(before[room][2])
            cells += ' %.1f %% |' % old
            if share < old - 0.2:  # threads take another way now and then
                lost.append(room)
        print(cells)
    lost += sorted(before.keys() - lines.keys())
    for room in lost:
        print('fewer lines of %s run than before' % room)
    sys.exit(1 if lost else 0)


if __name__ == '__main__':
    main(*sys.argv[1:])
