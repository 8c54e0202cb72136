#!/usr/bin/env python3
"""docs/reference/cli.md says what `varda --help` says: every subcommand, every flag, its default and what it does.

    cli_reference.py PROGRAM            compares, and says what differs (exit 1)
    cli_reference.py PROGRAM --write    writes the page
"""
import pathlib, re, subprocess, sys

PAGE = pathlib.Path(__file__).resolve().parents[2] / 'docs/reference/cli.md'
HEAD = '''# varda on the command line

<!-- Generated from `varda --help` by tests/structure/cli_reference.py. Do not edit. -->

What talks to a server takes it from `--kubeconfig`, else `$KUBECONFIG`, else from the data directory of `varda up`. Every subcommand has
`--help`; those that run until they are stopped also read flags from a file (`--config`) and log to standard error.

Exit codes: 0 done · 1 it failed, and standard error says why and what to do · 2 the command line was wrong · 130 stopped by a signal.
'''
SKIP = 77  # CTest: not built here


def text_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def entries(block):
    """(name, explanation) pairs of an indented two-column block; a long name has its explanation on the next line."""
    out = []
    for line in block:
        if re.match(r'  \S', line):
            name, _, what = line.strip().partition('  ')
            out.append([name.strip(), what.strip()])
        elif line.strip() and out:
            out[-1][1] = (out[-1][1] + ' ' + line.strip()).strip()
    # "--name TEXT=x explanation": one blank only, when the name fills its column.
    for entry in out:
        if not entry[1]:
            name, default, what = re.match(r'(\S+(?: [A-Z][A-Z:]*)?)(=\S+)?(.*)', entry[0]).groups()
            entry[0], entry[1] = name + (default or ''), what.strip()
    return out


def sections(text):
    """{title: lines} of a help text, in order."""
    out, title = {}, ''
    for line in text.splitlines():
        if re.match(r'\S.*:$', line):
            title = line[:-1]
        else:
            out.setdefault(title, []).append(line)
    return out


def flag_row(name, what):
    required = ' REQUIRED' in name
    name = re.sub(r'\{false\}', '', name.replace(' REQUIRED', '').replace(' ...', '…'))
    flag, _, kind = name.partition(' ')
    repeated = '…' if kind.endswith('…') else ''
    kind, _, default = kind.rstrip('…').partition('=')
    choices = re.search(r'\{(.*)\}', kind)
    value = choices.group(1).replace(',', ' or ') if choices else {'TEXT': 'TEXT', 'UINT': 'N', 'INT': 'N', 'FLOAT': 'N'}.get(kind.split(':')[0], '')
    shown = ', '.join('`%s`' % (part + (' ' + value + repeated if value and not choices else '')) for part in flag.split(','))
    cells = [shown, 'required' if required else '`%s`' % default if default else '', what]
    return '| %s |' % ' | '.join(cell.replace('|', '\\|') for cell in cells)


def page(program):
    out = [HEAD]
    top = sections(text_of(program, '--help'))
    commands = []
    for name, what in entries(top['Subcommands']):
        below = sections(text_of(program, name, '--help')).get('Subcommands')
        commands += [('%s %s' % (name, n), w) for n, w in entries(below)] if below else [(name, what)]
    out += ['| command | what |', '|---|---|'] + ['| [`varda %s`](#varda-%s) | %s |' % (n, n.replace(' ', '-'), w) for n, w in commands]
    for name, what in commands:
        help_text = sections(text_of(program, *name.split(), '--help'))
        out += ['', '## varda %s' % name, '', what[0].upper() + what[1:] + '.']
        for title, lines in help_text.items():
            rows = [flag_row(n, w) for n, w in entries(lines) if not n.startswith('-h,')]
            if title and rows:
                out += ['', title + ':', ''] if title not in ('Options', 'Positionals') else ['']
                out += ['| %s | default | what |' % ('word' if title == 'Positionals' else 'flag'), '|---|---|---|'] + rows
    return '\n'.join(out) + '\n'


def main():
    program = sys.argv[1]
    if not pathlib.Path(program).exists():
        print('%s is not built' % program)
        return SKIP
    wanted = page(program)
    if '--write' in sys.argv:
        PAGE.write_text(wanted)
        return 0
    have = PAGE.read_text().splitlines() if PAGE.exists() else []
    missing = [line for line in wanted.splitlines() if line not in have]
    if '\n'.join(have) + '\n' == wanted:
        return 0
    print('docs/reference/cli.md is not what `varda --help` says; `%s PROGRAM --write` rewrites it. Not on the page:' % sys.argv[0])
    print('\n'.join(missing) or '(only the order differs, or the page says more)')
    return 1


if __name__ == '__main__':
    sys.exit(main())
