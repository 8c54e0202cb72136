#!/usr/bin/env python3
"""Start time of `varda up`, and the memory of its idle processes. Prints a Markdown table: figure, median,
min, max, aim."""
import pathlib, statistics, sys, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'tests/support'))
import machine as m  # noqa: E402

RUNS = 7


def rss_mib(pid):
    """Resident memory as counted by the kernel (Pss of other users' processes would need root)."""
    for line in open('/proc/%d/status' % pid):
        if line.startswith('VmRSS'):
            return int(line.split()[1]) / 1024


def private_mib(pid):
    total = 0
    for line in open('/proc/%d/smaps_rollup' % pid):
        if line.startswith(('Private_Clean', 'Private_Dirty')):
            total += int(line.split()[1])
    return total / 1024


def main():
    fresh, again, rss = [], [], {'control plane': [], 'node': []}
    private = {'control plane': [], 'node': []}
    for _ in range(RUNS):
        with m.Machine(nodes=['cloud=cloud', 'edge0=edge']) as varda:
            begin = time.monotonic()
            varda.up()
            fresh.append(1e3 * (time.monotonic() - begin))
            m.wait_until('both nodes ready', lambda: varda.kubectl('get', 'nodes').count(' Ready') == 2)
            time.sleep(2)
            for pid, command in varda.processes().items():
                kind = 'control plane' if ' up ' in command + ' ' else 'node' if ' agent ' in command + ' ' else None
                if kind:
                    rss[kind].append(rss_mib(pid))
                    private[kind].append(private_mib(pid))
            varda.down()
            begin = time.monotonic()
            varda.up()
            again.append(1e3 * (time.monotonic() - begin))
    rows = [('`varda up` to ready, new data directory', 'ms', fresh, '≤ 150'), ('`varda up` to ready, again', 'ms', again, '≤ 150'),
            ('RSS of the control plane, idle', 'MiB', rss['control plane'], '≤ 30'), ('  of that private', 'MiB', private['control plane'], ''),
            ('RSS of a node process, idle', 'MiB', rss['node'], '≤ 12'), ('  of that private', 'MiB', private['node'], '')]
    print('| what | unit | median | min | max | aim |\n|---|---|---|---|---|---|')
    for what, unit, values, aim in rows:
        print('| %s | %s | %.1f | %.1f | %.1f | %s |' % (what, unit, statistics.median(values), min(values), max(values), aim))


if __name__ == '__main__':
    main()
