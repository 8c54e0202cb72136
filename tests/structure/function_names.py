#!/usr/bin/env python3
"""The functions that ARCHITECTURE.md names exist.

    python3 tests/structure/function_names.py       every missing file or function; exit 1 if there is one

`runtime/informer.cc: Informer::put()` is a function of that file, below src/, src/embedded/ or the root. `put()` alone is a function
of the file named before it.
"""
import pathlib, re, sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAME = re.compile(r'`(?:(?P<file>[\w/.-]+\.(?:cc|h)):\s+)?(?P<function>[A-Za-z_]\w*(?:::~?\w+)*)\(\)`')


def path_of(file):
    return next((base / file for base in (ROOT / 'src', ROOT / 'src/embedded', ROOT) if (base / file).is_file()), None)


def problems(text):
    """Every missing name of `text`, and the number of names found."""
    found, missing, content, file = 0, [], '', None
    for match in NAME.finditer(text):
        line = text.count('\n', 0, match.start()) + 1
        if match['file']:
            file, path = match['file'], path_of(match['file'])
            content = path.read_text() if path else ''
            if not path:
                missing.append('line %d: there is no file %s' % (line, file))
        function = match['function'].split('::')[-1]
        if not re.search(r'\b%s\(' % re.escape(function), content):
            missing.append('line %d: %s has no function %s' % (line, file, match['function']))
        else:
            found += 1
    return missing, found


if __name__ == '__main__':
    missing, found = problems((ROOT / 'ARCHITECTURE.md').read_text())
    if len(problems("`base/result.h: no_such_function()` `base/no_such_file.h: f()`")[0]) < 3:
        missing.append('this check finds names that do not exist')
    if found < 50:
        missing.append('only %d names: has the form changed?' % found)
    for problem in missing:
        print('ARCHITECTURE.md, ' + problem)
    sys.exit(1 if missing else 0)
