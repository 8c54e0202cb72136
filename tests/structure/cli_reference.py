#!/usr/bin/env python3
"""docs/reference/cli.md and man/varda.1 match `varda --help`: subcommands, flags, defaults, texts.

    cli_reference.py PROGRAM            compares both pages with the program (exit 1: they differ)
    cli_reference.py PROGRAM --write    writes both pages
"""
import pathlib, re, subprocess, sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / 'docs/reference/cli.md'
MAN = ROOT / 'man/varda.1'
HEAD = '''# varda on the command line

<!-- Generated from `varda --help` by tests/structure/cli_reference.py. Do not edit. -->

A command that talks to an API server looks for a kubeconfig in this order: the file `--kubeconfig`,
the files of `$KUBECONFIG`, the data directory of `varda up`, the service account of the pod.
`$KUBECONFIG` is a list of files with `:` between them. Varda merges them as kubectl does. For
clusters, users and contexts with the same name, and for `current-context`, the first entry wins.
Missing files of the list are skipped. If all of them are missing, the command fails.

Every command has `--help`, and `varda help COMMAND` prints the same. Commands that run until they
are stopped log to standard error, read flags from a file (`--config`), and show all flags with
`--help-all`. `varda --version` prints the version.

Exit codes: 0 done · 1 failed, and standard error has the reason and the remedy · 2 wrong command
line · 130 stopped by a signal.

## Flags in a file

`--config FILE` reads more flags of the command from a file. These commands have it: `varda up`,
`apiserver`, `operator`, `gateway`, `agent`, `artifacts serve`, `train`, and
[`varda-serve`](varda-serve.md).

```ini
# /etc/varda/up.conf, for `varda up --config /etc/varda/up.conf`
data-dir = /var/lib/varda
listen = 0.0.0.0:6443
node = cloud
node = edge0=edge
detach = true
```

- A line is `NAME = VALUE`. NAME is a long flag without dashes. VALUE is the rest of the line.
- A repeatable flag has one line per value. A flag without a value takes `true` or `false`.
- Double quotes around a value are removed: `http-proxy = ""` is an empty value.
- A comment is a line that begins with `#`. There are no sections.
- The command line wins: a flag there replaces all lines of the flag in the file.
- A missing file, an unknown name or a wrong value is an error (exit code 2) with file and line.

## Completion and manual page

    source <(varda completion bash)        # in ~/.bashrc; for zsh: source <(varda completion zsh) in ~/.zshrc
    man -l man/varda.1                     # or copy it to /usr/local/share/man/man1

## Commands
'''
SKIP = 77  # CTest: the program is not built here


def text_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def entries(block):
    """(name, explanation) pairs of an indented two-column block; the explanation of a long name is
    on the next line."""
    out = []
    for line in block:
        if re.match(r'  \S', line):
            name, _, what = line.strip().partition('  ')
            out.append([name.strip(), what.strip()])
        elif line.strip() and out:
            out[-1][1] = (out[-1][1] + ' ' + line.strip()).strip()
    # "--name TEXT=x explanation": a single blank follows a name that fills its column.
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


def full_help(program, *command):
    """The sections of the help with all flags."""
    text = text_of(program, *command, '--help')
    return sections(text_of(program, *command, '--help-all') if '--help-all' in text else text)


def commands_of(program):
    """(name, text, {title: [(flag, text)]}) of every command, in order."""
    out = []
    for name, what in entries(full_help(program)['Subcommands']):
        below = full_help(program, name).get('Subcommands')
        out += [('%s %s' % (name, n), w) for n, w in entries(below)] if below else [(name, what)]
    shown = lambda flag: not flag.startswith('-h,') and flag != '--help-all'
    return [(name, what, {title: rows for title, lines in full_help(program, *name.split()).items()
                          if title and (rows := [row for row in entries(lines) if shown(row[0])])}) for name, what in out]


def page(commands):
    out = [HEAD]
    out += ['| command | what |', '|---|---|'] + ['| [`varda %s`](#varda-%s) | %s |' % (n, n.replace(' ', '-'), w) for n, w, _ in commands]
    for name, what, groups in commands:
        out += ['', '## varda %s' % name, '', what[0].upper() + what[1:] + '.']
        for title, rows in groups.items():
            out += ['', title + ':', ''] if title not in ('Options', 'Positionals') else ['']
            out += ['| %s | default | what |' % ('word' if title == 'Positionals' else 'flag'), '|---|---|---|'] + [flag_row(*row) for row in rows]
    return '\n'.join(out) + '\n'


def roff(text):
    text = text.replace('\\', '\\e').replace('-', '\\-').replace('…', '...').replace('·', '\\(bu')
    return '\\&' + text if text[:1] in ".'" else text


def plain(markdown):
    """A paragraph of HEAD without its Markdown."""
    return re.sub(r'\[([^]]*)\]\([^)]*\)', r'\1', markdown).replace('`', '')


def manual(version, commands):
    head = HEAD.split('\n## ')
    out = ['.\\" Generated from `varda --help` by tests/structure/cli_reference.py. Do not edit.',
           '.TH VARDA 1 "" "%s" "Varda"' % version, '.SH NAME', 'varda \\- edge AI for Kubernetes and KubeEdge', '.SH SYNOPSIS',
           '.B varda', '.I COMMAND', '[flags]', '.SH DESCRIPTION']
    for paragraph in head[0].split('\n\n')[2:]:
        out += ['.PP'] + [roff(line) for line in plain(paragraph).splitlines()]
    out += ['.SH COMMANDS']
    for name, what, groups in commands:
        out += ['.SS "varda %s"' % roff(name), roff(what[0].upper() + what[1:] + '.')]
        for title, rows in groups.items():
            if title not in ('Options', 'Positionals'):
                out += ['.PP', roff(title + ':')]
            for flag, text in rows:
                out += ['.TP', '.B ' + roff(re.sub(r'\{false\}', '', flag).replace(',', ', ', 1)), roff(text)]
    title, _, text = head[1].partition('\n')
    out += ['.SH ' + title.upper()]
    example = False
    for line in text.strip().splitlines():
        if line.startswith('```'):
            example = not example
            out += ['.PP', '.nf'] if example else ['.fi']
        elif example:
            out += [roff(line)]
        elif line.startswith('- '):
            out += ['.IP \\(bu 2', roff(plain(line[2:]))]
        elif line:
            out += [roff(plain(line))]
    out += ['.SH ENVIRONMENT']
    for name, text in (('KUBECONFIG', 'Kubeconfig files, separated by colons. Varda merges them as kubectl does.'),
                       ('XDG_DATA_HOME', 'The data directory of varda up is its subdirectory varda; default: ~/.local/share.'),
                       ('http_proxy, https_proxy, no_proxy', 'Proxies for downloads of archives and for API servers.'),
                       ('NODE_NAME, VARDA_GATEWAY', 'Defaults of --node and --gateway of varda agent.')):
        out += ['.TP', '.B ' + roff(name), roff(text)]
    return '\n'.join(out + ['.SH SEE ALSO', 'kubectl(1)']) + '\n'


def main():
    program = sys.argv[1]
    if not pathlib.Path(program).exists():
        print('%s is not built' % program)
        return SKIP
    commands = commands_of(program)
    wanted = {PAGE: page(commands), MAN: manual(text_of(program, '--version').strip(), commands)}
    if '--write' in sys.argv:
        for file, text in wanted.items():
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        return 0
    differing = 0
    for file, text in wanted.items():
        have = file.read_text() if file.exists() else ''
        if have == text:
            continue
        differing += 1
        missing = [line for line in text.splitlines() if line not in have.splitlines()]
        print('%s differs from `varda --help`; `%s PROGRAM --write` rewrites it. Missing there:' % (file.relative_to(ROOT), sys.argv[0]))
        print('\n'.join(missing) or '(the order differs, or the page has more lines)')
    return 1 if differing else 0


if __name__ == '__main__':
    sys.exit(main())
