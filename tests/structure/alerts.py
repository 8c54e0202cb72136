#!/usr/bin/env python3
"""Alert rules in docs/guides: each rule names metrics that the programs export and that the
reference lists, with labels of these metrics.

    alerts.py
"""
import pathlib, re, sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r'^```yaml\n(.*?)^```', re.M | re.S)
RULE = re.compile(r'^  - alert: (\S+)\n(.*?)(?=^  - alert: |\Z)', re.M | re.S)
METRIC = re.compile(r'\b(varda_[a-z0-9_]+)(\{[^}]*\})?')
SUFFIX = re.compile(r'_(bucket|sum|count)$')


def exported():
    """Names in string literals of the sources."""
    found = set()
    for path in (ROOT / 'src').rglob('*.cc'):
        if not path.name.endswith('_test.cc'):
            found.update(re.findall(r'"(varda_[a-z0-9_]+)"', path.read_text()))
    return found


def listed():
    """The rows of the reference: name of the metric and text of the row."""
    rows = {}
    for name in ('metrics.md', 'varda-serve.md'):
        for line in (ROOT / 'docs/reference' / name).read_text().splitlines():
            for metric in re.findall(r'`(varda_[a-z0-9_]+)`', line):
                rows.setdefault(metric, line)
    return rows


def problems_of(where, name, rule, names, rows):
    expression = re.search(r'^    expr: (?:\|\n((?:      .*\n)+)|(.*)\n)', rule, re.M)
    if expression is None:
        yield '%s: %s has no expr' % (where, name)
        return
    text = expression.group(1) or expression.group(2)
    if text.count('(') != text.count(')') or text.count('{') != text.count('}'):
        yield '%s: %s has unbalanced brackets' % (where, name)
    if not re.search(r"^    annotations:(?: \{summary: .+\}|\n      summary: .+)$", rule, re.M):
        yield '%s: %s has no summary' % (where, name)
    metrics = METRIC.findall(text)
    if not metrics:
        yield '%s: %s names no metric' % (where, name)
    for metric, selector in metrics:
        plain = metric if metric in names else SUFFIX.sub('', metric)
        if plain not in names:
            yield '%s: %s reads %s, which no program exports' % (where, name, metric)
        elif plain not in rows:
            yield '%s: %s reads %s, which docs/reference does not list' % (where, name, metric)
        else:
            for label, value in re.findall(r'(\w+)="([^"]*)"', selector):
                row = rows[plain]
                # A row that lists the values of the label lists this one.
                values = re.search(r'`%s`: ([\w, ]+)' % label, row)
                if '`%s`' % label not in row or (values and value not in values.group(1).strip().split(', ')):
                    yield '%s: %s selects %s="%s", which %s does not have' % (where, name, label, value, plain)


def main():
    names, rows, seen, problems = exported(), listed(), {}, []
    for path in sorted((ROOT / 'docs').rglob('*.md')):
        where = path.relative_to(ROOT)
        for block in BLOCK.findall(path.read_text()):
            for name, rule in RULE.findall(block):
                if name in seen:
                    problems.append('%s: %s is also in %s' % (where, name, seen[name]))
                seen[name] = where
                problems.extend(problems_of(where, name, rule, names, rows))
    if not seen:
        problems.append('docs has no alert rule')
    for problem in problems:
        print(problem)
    print('%d alert rules, %d problems' % (len(seen), len(problems)))
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
