#!/usr/bin/env python3
"""Sums the counts of gcov by room, without tests and fakes. The input is gcov's JSON on stdin, one
line per object. With an earlier table, it names the rooms that lost lines."""
import collections, json, os, pathlib, sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def room_of(directory, name):
    """The room of a file, or None if the file is in no room."""
    try:
        path = pathlib.Path(os.path.normpath(os.path.join(directory, name))).relative_to(ROOT)
    except ValueError:
        return None  # a system header
    if path.parts[0] not in ('src', 'apps', 'plugins') or path.name.endswith('_test.cc') or 'testing' in path.parts:
        return None
    room = 2 if path.parts[1] == 'embedded' else 1
    return path, path.parts[room] if path.parts[0] == 'src' else '/'.join(path.parts[:2])


def read_counts(lines):
    """{room: {(file, line): times}}"""
    found = collections.defaultdict(collections.Counter)
    for line in lines:
        report = json.loads(line)
        for file in report['files']:
            place = room_of(report['current_working_directory'], file['file'])
            if place is None:
                continue
            path, room = place
            for one in file['lines']:
                found[room][(path, one['line_number'])] += one['count']
    return found


def main(table, earlier=None):
    counts = read_counts(sys.stdin)
    before = {}
    if earlier:
        before = {row.split('\t')[0]: row.split('\t') for row in pathlib.Path(earlier).read_text().splitlines()}
    covered = {room: sum(times > 0 for times in lines.values()) for room, lines in counts.items()}
    pathlib.Path(table).write_text(''.join('%s\t%d\t%d\n' % (room, covered[room], len(counts[room])) for room in sorted(counts)))
    lost = []
    print('| room | lines run | of | share |%s' % (' before |' if before else ''))
    print('|---|---|---|---|%s' % ('---|' if before else ''))
    for room in sorted(counts):
        share = 100.0 * covered[room] / len(counts[room])
        cells = '| %s | %d | %d | %.1f %% |' % (room, covered[room], len(counts[room]), share)
        if room in before:
            old = 100.0 * int(before[room][1]) / int(before[room][2])
            cells += ' %.1f %% |' % old
            if share < old - 0.2:  # a tolerance, because threads take varying paths
                lost.append(room)
        print(cells)
    for room in lost + sorted(before.keys() - counts.keys()):
        print('fewer lines of %s run than before' % room)
    sys.exit(1 if lost or before.keys() - counts.keys() else 0)


if __name__ == '__main__':
    main(*sys.argv[1:])
