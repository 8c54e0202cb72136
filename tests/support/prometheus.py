"""A strict reader of Prometheus' text format (0.0.4). Malformed text is an AssertionError, as
servers and `promtool check metrics` may refuse it."""
import re

SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"(?:,(?=[a-zA-Z_])|(?=\})))+)\})? (\S+)')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"')
TYPES = {'counter': [''], 'gauge': [''], 'untyped': [''], 'histogram': ['_bucket', '_sum', '_count'], 'summary': ['', '_sum', '_count']}


def parse(text):
    """{name: {(label, value)...: number}} of all samples."""
    out, kinds, family = {}, {}, None
    assert text.endswith('\n'), 'the last line does not end'
    for line in text[:-1].split('\n'):
        if line.startswith('#'):
            what, name, rest = re.fullmatch(r'# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.*)', line).groups()
            if what == 'HELP':
                assert name not in kinds, 'two families are called %s' % name
                assert rest, '%s is not described' % name
                kinds[name], family = None, name
            else:
                assert family == name and kinds[name] is None, 'the type of %s stands elsewhere' % name
                kinds[name] = TYPES[rest]
            continue
        found = SAMPLE.fullmatch(line)
        assert found, 'not a sample: %r' % line
        name, inner, value = found.groups()
        assert family and kinds[family] and name in [family + end for end in kinds[family]], '%s stands among %s' % (name, family)
        labels = LABEL.findall(inner or '')
        assert len(dict(labels)) == len(labels), 'a label twice: %r' % line
        series = out.setdefault(name, {})
        key = frozenset(labels)
        assert key not in series, 'a sample twice: %r' % line
        series[key] = float(value)
    return out


def of(samples, **labels):
    """{name: {(further label, value)...: number}} of the samples that have these labels."""
    wanted = set(labels.items())
    chosen = {name: {key - wanted: value for key, value in series.items() if wanted <= key} for name, series in samples.items()}
    return {name: series for name, series in chosen.items() if series}
