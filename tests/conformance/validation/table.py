"""The tables of validation cases: read, write, build objects, and derive cases from a schema.

README.md describes the format. Python 3 standard library only.
"""
import copy
import json
import re

LONG = ('$repeat', '$items', '$members')


def load(path):
    with open(path) as file:
        return json.load(file)


def save(path, table):
    """Writes one case a line, so that a diff is readable."""
    head = {key: value for key, value in table.items() if key not in ('cases', 'schema')}
    with open(path, 'w') as file:
        file.write(json.dumps(head, indent=1)[:-2])
        for part in ('cases', 'schema'):
            file.write(',\n "%s": [\n' % part)
            file.write(',\n'.join('  ' + json.dumps(case, ensure_ascii=False) for case in table[part]))
            file.write('\n ]')
        file.write('\n}\n')


def value_of(given, index=None):
    """The value of a case, with abbreviations expanded."""
    if isinstance(given, str):
        return given if index is None else given.replace('${i}', str(index))
    if isinstance(given, list):
        return [value_of(item, index) for item in given]
    if not isinstance(given, dict):
        return given
    if '$repeat' in given:
        return given.get('before', '') + given['$repeat'] * given['times'] + given.get('after', '')
    if '$items' in given:
        return [value_of(given['$items'], i) for i in range(given['times'])]
    if '$members' in given:
        return {'k%d' % i: value_of(given['$members'], i) for i in range(given['times'])}
    if '$null' in given:
        return None
    return {name: value_of(item, index) for name, item in given.items()}


def steps(path):
    """'spec.models[0].key' -> ['spec', 'models', 0, 'key']; quotes enclose a member with a dot in
    its name: spec.labels["a.b"]."""
    found = []
    for name, index, quoted in re.findall(r'([^.\[\]]+)|\[(\d+)\]|\["([^"]*)"\]', path):
        found.append(int(index) if index else quoted or name)
    return found


def shape_of(path):
    """'spec.models[0].key' -> 'spec.models[].key'"""
    return re.sub(r'\[\d+\]', '[]', path)


def assign(target, path, given):
    """Sets the value at the path; null removes it."""
    way = steps(path)
    for step in way[:-1]:
        if isinstance(step, int):
            target = target[step]
        else:
            target = target.setdefault(step, {})
    last = way[-1]
    if given is None:
        if isinstance(last, int):
            del target[last]
        else:
            target.pop(last, None)
    elif isinstance(last, int) and last == len(target):
        target.append(value_of(given))
    else:
        target[last] = value_of(given)


def variant_of(table, name):
    return next(variant for variant in table['variants'] if variant['name'] == name)


def object_of(table, case):
    made = copy.deepcopy(table['base'])
    if 'of' in case:
        for path, given in variant_of(table, case['of'])['set'].items():
            assign(made, path, given)
    for path, given in case['set'].items():
        assign(made, path, given)
    return made


def is_status(case):
    """True if the case changes status, which only the status subresource writes."""
    return any(path == 'status' or path.startswith(('status.', 'status[')) for path in case['set'])


class Systematic:
    """For every node of a schema: a value at each of its limits, and one beyond."""
    TEXTS = ['a', 'a1', '1', '/a', '1d', 'a/b', 'a.b/n/x', 'https://a/b', 'a' * 64, '0' * 64]
    WRONG = {'string': 7, 'integer': 'text', 'number': 'text', 'boolean': 'yes', 'array': 'text', 'object': 'text'}

    def __init__(self, table, schema):
        self.table, self.cases = table, []
        self.without = set(table.get('without', []))
        self.vary = table.get('vary', {})
        self.base, self.variant = table['base'], None
        self.seen, self.again = set(), False
        self.elsewhere = {shape_of(path) for variant in table.get('variants', []) for path in variant['covers']}
        for name in ('spec', 'status'):
            if name in schema['properties']:
                part = schema['properties'][name]
                table['base'].setdefault(name, {})
                self.complete(part, table['base'][name], name)
                if name in schema.get('required', []):
                    self.add(name, 'required', None)
                self.visit(part, name, name)
        for variant in table.get('variants', []):
            self.visit_variant(variant, schema)

    # Visits members that the base cannot have together with its other members.
    def visit_variant(self, variant, schema):
        self.variant = variant['name']
        for path in variant['covers']:
            part = schema
            for step in steps(path):
                part = part['items'] if isinstance(step, int) else part['properties'][step]
            if path in variant['set']:
                self.complete_value(part, variant['set'][path], shape_of(path))
            self.base = object_of(self.table, {'of': self.variant, 'set': {}})
            self.visit_once(part, path, shape_of(path))

    # Adds every member of the schema to an object.
    def complete(self, schema, value, path):
        for name, member in schema.get('properties', {}).items():
            where = path + '.' + name
            if where in self.without or where in self.elsewhere:
                continue
            if name not in value:
                value[name] = self.example(member, where)
            self.complete_value(member, value[name], where)

    def complete_value(self, schema, value, path):
        if isinstance(value, dict):
            self.complete(schema, value, path)
        elif isinstance(value, list) and value:
            self.complete_value(schema['items'], value[0], path + '[]')

    def example(self, schema, path):
        kind = schema.get('type')
        if 'enum' in schema:
            return schema['enum'][0]
        if schema.get('x-kubernetes-int-or-string') or kind == 'string':
            return self.text(schema)
        if kind in ('integer', 'number'):
            return max(1, schema.get('minimum', 1))
        if kind == 'boolean':
            return True
        if kind == 'array':
            return [self.example(schema['items'], path + '[]')]
        if 'additionalProperties' in schema:
            return {'k': self.example(schema['additionalProperties'], path + '.k')}
        made = {}
        self.complete(schema, made, path)
        return made

    def text(self, schema):
        if schema.get('format') == 'date-time':
            return '2024-05-01T12:00:00Z'
        for text in self.TEXTS:
            if self.fits(schema, text):
                return text
        raise SystemExit('no text of mine matches %s: give the member a value in "base"' % schema.get('pattern'))

    @staticmethod
    def fits(schema, text):
        return (schema.get('minLength', 0) <= len(text) <= schema.get('maxLength', 1 << 30) and
                (not schema.get('pattern') or re.search(schema['pattern'], text)))

    # Some schemas appear in several places. Each limit is kept in the first place, and broken in
    # all.
    BREAKS = ('type', 'enum', 'pattern', 'minLength', 'maxLength', 'minimum', 'maximum', 'minItems', 'maxItems', 'maxProperties',
              'list-map keys', 'required')

    def visit_once(self, schema, path, shape):
        before, text = self.again, json.dumps(schema, sort_keys=True)
        if len(schema.get('properties', {})) >= 6:
            self.again = self.again or text in self.seen
            self.seen.add(text)
        self.visit(schema, path, shape)
        self.again = before

    def add(self, path, what, given):
        if self.again and what not in self.BREAKS:
            return
        case = {'name': path + ': ' + what, 'set': {path: given}}
        if self.variant:
            case['of'] = self.variant
        self.cases.append(case)

    # `path` leads through the base; `shape` is the same path without indexes.
    def visit(self, schema, path, shape):
        kind = schema.get('type')
        if schema.get('x-kubernetes-int-or-string'):
            self.add(path, 'type', True)
        elif not (kind == 'object' and schema.get('x-kubernetes-preserve-unknown-fields')):
            self.add(path, 'type', self.WRONG[kind])
        if kind == 'integer':
            self.add(path, 'type, a fraction', 1.5)
            most = (1 << 31 if schema.get('format') == 'int32' else 1 << 63) - 1
            if schema.get('maximum', most) == most:
                self.add(path, 'at the limit of the format', most)
                self.add(path, 'format', most + 1)
        if 'enum' in schema:
            self.add(path, 'enum', 'no-such-word')
            for word in schema['enum']:
                self.add(path, 'enum, ' + word, word)
        if schema.get('format') == 'date-time':
            self.add(path, 'format', 'yesterday')
        self.visit_text(schema, path)
        for limit, beyond in (('minimum', -1), ('maximum', 1)):
            if limit in schema:
                self.add(path, 'at ' + limit, schema[limit])
                self.add(path, limit, schema[limit] + beyond)
        if kind == 'array':
            self.visit_list(schema, path, shape)
        if kind == 'object':
            self.visit_members(schema, path, shape)

    def visit_text(self, schema, path):
        if 'pattern' in schema:
            for text in (' ', '-', '!', '', '!' * 44):
                if len(text) >= schema.get('minLength', 0) and not re.search(schema['pattern'], text):
                    self.add(path, 'pattern', text)
                    break
            else:
                raise SystemExit('%s: every text of mine matches %s' % (path, schema['pattern']))
        if schema.get('minLength'):
            if 'enum' not in schema:
                self.add(path, 'minLength', '')
        if 'maxLength' in schema and 'enum' not in schema:
            most = schema['maxLength']
            for letter, before in (('a', ''), ('0', ''), ('a', 'https://a/')):
                if self.fits(schema, before + letter * (most - len(before))):
                    self.add(path, 'at maxLength', {'before': before, '$repeat': letter, 'times': most - len(before)})
                    break
            self.add(path, 'maxLength', {'$repeat': 'a', 'times': most + 1})
            if self.fits(schema, 'é'):  # characters count, not bytes
                self.add(path, 'at maxLength, of two bytes each', {'$repeat': 'é', 'times': most})

    def visit_list(self, schema, path, shape):
        item = schema['items']
        base = self.base_at(path)
        keys = schema.get('x-kubernetes-list-map-keys', [])
        template = copy.deepcopy(base[0])
        varied = [self.vary[shape]] if shape in self.vary else [k for k in keys if 'enum' not in item['properties'][k]]
        for key in varied[-1:]:
            numeric = item['properties'][key].get('type') == 'integer'
            template[key] = 0 if numeric else '${i}'
        if 'maxItems' in schema:
            self.add(path, 'at maxItems', {'$items': template, 'times': schema['maxItems']})
            self.add(path, 'maxItems', {'$items': template, 'times': schema['maxItems'] + 1})
        if keys:
            self.add(path, 'list-map keys', {'$items': base[0], 'times': 2})
        self.add(path, 'minItems' if 'minItems' in schema else 'empty', [])
        self.visit_once(item, path + '[0]', shape + '[]')

    def visit_members(self, schema, path, shape):
        if 'additionalProperties' in schema:
            base = self.base_at(path)
            name = sorted(base)[0]
            if 'maxProperties' in schema:
                self.add(path, 'at maxProperties', {'$members': base[name], 'times': schema['maxProperties']})
                self.add(path, 'maxProperties', {'$members': base[name], 'times': schema['maxProperties'] + 1})
            self.visit(schema['additionalProperties'], path + '.' + name, shape + '.*')
        for name, member in schema.get('properties', {}).items():
            where = path + '.' + name
            if shape + '.' + name in self.elsewhere:
                continue
            if name in schema.get('required', []):
                self.add(where, 'required', None)
            self.visit_once(member, where, shape + '.' + name)

    def base_at(self, path):
        value = self.base
        for step in steps(path):
            value = value[step]
        return value


def extend(table, crd):
    """Adds every member of the schema to the table's base, and derives the cases again, without
    answers."""
    version = crd['spec']['versions'][0]
    table['schema'] = Systematic(table, version['schema']['openAPIV3Schema']).cases
