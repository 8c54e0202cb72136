#!/usr/bin/env python3
"""Dependencies point down: an #include of a room names that room, a declared room, or the standard
library.

Reads rooms.txt of a build directory ("room: deps | test deps") and the sources. The test also
checks that a third-party header stands in .cc files of one room only, that internal/ headers stay
inside their room, and that no code throws. Inside a room the folders form no cycle, and in some
rooms a folder has one header for the others. PUBLIC limits the headers of a room for other rooms.
Libraries with several faces are listed below with a room for each.
"""
import pathlib, re, sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.M)
# Third-party headers by the first part of the path, and the rooms that may include them. OpenSSL
# has one room for each face.
THIRD_PARTY = {
    'spdlog': {'base'}, 'fmt': {'base'}, 'simdjson.h': {'codec'}, 'yaml-cpp': {'codec'}, 'archive.h': {'codec'}, 'archive_entry.h': {'codec'},
    'zstd.h': {'codec'}, 'zlib.h': {'codec'}, 'isa-l': {'codec'}, 'boost/json': {'codec'}, 'boost/asio': {'net'}, 'boost/beast': {'net'}, 'nghttp2': {'net'},
    **{'openssl/%s.h' % name: {'codec', 'net'} for name in ('bio', 'pem')}, **{'openssl/%s.h' % name: {'codec', 'net', 'privacy'} for name in ('crypto', 'err', 'evp')},
    'openssl/kdf.h': {'privacy'}, 'openssl/rand.h': {'net', 'privacy'}, 'openssl': {'net'}, 'sqlite3.h': {'store'}, 're2': {'schema'},
    'CLI': {'apps'}, 'expat.h': {'dataset'}, 'xxhash.h': {'dataset'}, 'xxh_x86dispatch.h': {'dataset'}, 'spng.h': {'codec'}, 'turbojpeg.h': {'codec'}, 'onnxruntime_c_api.h': {'plugins'}, 'oneapi': {'plugins'}, 'omp.h': {'plugins'}, 'opencv2': {'plugins'}, 'boost': {'net', 'codec'},
}
# These files leave a library's callback by an exception, because there is no other way. The same
# file catches it.
MAY_THROW = {'src/codec/yaml.cc'}

# These rooms have a cycle of folders, and the reason.
FOLDER_CYCLES = {
    'api': 'kind.cc lists the kinds, and every kind includes describe.h beside it',
    'apiserver': 'server.h takes kinds/crd.h, and the kinds are those of kind.h',
    'serving': 'repository.h holds the tiers of joint/, which call the executor beside it',
}
# Folders of rooms: "src/embedded/apiserver" is the room apiserver.
AREAS = {'embedded'}
# In these rooms other folders include only FOLDER/FOLDER.h of a folder.
ONE_HEADER = {'controllers'}
# Other rooms and apps/ include only these headers of a room.
PUBLIC = {'agent': {'agent/agent.h', 'agent/identity/identity.h', 'agent/identity/issued.h'}}


def folder_of(path):
    """The folder of a file inside its room; internal/ and testing/ belong to the folder above."""
    return '/'.join(part for part in path.split('/')[1:-1] if part not in ('internal', 'testing'))


def folder_problems(room, arrows):
    """`arrows`: (folder, folder, file, header) of one room, without tests."""
    problems, below = [], {}
    for source, target, path, header in arrows:
        if source == target:
            continue
        below.setdefault(source, set()).add(target)
        if room in ONE_HEADER and target and header != '%s/%s/%s.h' % (room, target, target):
            problems.append('%s includes "%s": other folders include only "%s/%s/%s.h"' % (path, header, room, target, target))

    def reach(folder):
        seen, todo = set(), [folder]
        while todo:
            for target in below.get(todo.pop(), ()):
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        return seen

    cycle = sorted(folder or '.' for folder in below if folder in reach(folder))
    if cycle and room not in FOLDER_CYCLES:
        problems.append('folders of room %s include each other in a cycle: %s' % (room, ', '.join(cycle)))
    if not cycle and room in FOLDER_CYCLES:
        problems.append('room %s has no cycle of folders: remove it from FOLDER_CYCLES' % room)
    return problems


def picture_problems(below):
    """The transitive closure of the arrows in ARCHITECTURE.md equals that of the rooms' DEPS."""
    picture = (ROOT / 'ARCHITECTURE.md').read_text().split('```mermaid')[1].split('```')[0]
    arrows = {}
    for left, right in re.findall(r'^\s*(\w+)(?:\[.*?\])? --> (.+)$', picture, re.M):
        arrows.setdefault(left, set()).update(x.strip() for x in right.split('&'))
    drawn = {}
    for name in below:
        drawn[name], todo = set(), [name]
        while todo:
            for dep in arrows.get(todo.pop(), ()):
                if dep not in drawn[name]:
                    drawn[name].add(dep)
                    todo.append(dep)
    wrong = ['ARCHITECTURE.md lets room %s stand on %s, its DEPS do not' % (n, d) for n in below for d in sorted(drawn[n] - below[n])]
    return wrong + ['room %s stands on %s, the picture in ARCHITECTURE.md does not say so' % (n, d) for n in below for d in sorted(below[n] - drawn[n])]


def main(build):
    rooms, problems, checked = {}, [], 0
    for line in (pathlib.Path(build) / 'rooms.txt').read_text().splitlines():
        name, deps = line.split(':', 1)
        plain, _, test = deps.partition('|')
        rooms[name] = (set(re.split(r'[;\s]+', plain.strip())) - {''}, set(re.split(r'[;\s]+', test.strip())) - {''})

    # The rooms that a room declares, and their dependencies: CMake links those too, so their
    # headers may be needed.
    def below(name):
        seen, todo = set(), [name]
        while todo:
            for dep in rooms[todo.pop()][0]:
                if dep not in seen:
                    seen.add(dep)
                    todo.append(dep)
        return seen

    for name in rooms:
        if name in below(name):
            problems.append('room %s stands on itself' % name)

    arrows = {name: [] for name in rooms}  # between folders of a room
    problems += picture_problems({name: below(name) for name in rooms})

    for path in sorted(p for top in ('src', 'apps', 'plugins') for p in (ROOT / top).rglob('*') if p.suffix in ('.h', '.cc')):
        relative = path.relative_to(ROOT)
        in_src = relative.parts[0] == 'src'
        inside = relative.parts[2:] if in_src and relative.parts[1] in AREAS else relative.parts[1:]  # from the room on
        room = inside[0] if in_src else relative.parts[0]
        if in_src and room not in rooms:
            problems.append('%s: folder src/%s is no room (no varda_room in a CMakeLists.txt)' % (relative, room))
            continue
        is_test = path.name.endswith('_test.cc') or 'testing' in relative.parts
        text = path.read_text()
        checked += 1
        if in_src and not is_test and str(relative) not in MAY_THROW and re.search(r'\bthrow(;| [\w:]+[({])', text):
            problems.append('%s: throws; return an Error instead' % relative)
        for kind, header in INCLUDE.findall(text):
            first = header.split('/')[0]
            if kind == '"' and first in rooms:
                allowed = rooms[room][0] | ({*rooms[room][1]} if is_test else set()) | {room} if in_src else set(rooms)
                if first not in allowed:
                    problems.append('%s includes "%s", but %s does not declare room %s' % (relative, header, room, first))
                if first == room and in_src and not is_test:
                    arrows[room].append((folder_of('/'.join(inside)), folder_of(header), relative, header))
                if first != room and not is_test and header not in PUBLIC.get(first, {header}):
                    problems.append('%s includes "%s": room %s has only %s for others' % (relative, header, first, ', '.join(sorted(PUBLIC[first]))))
                if '/internal/' in header and first != room:
                    problems.append('%s includes "%s", which is internal to room %s' % (relative, header, first))
                if '/testing/' in header and not is_test and relative.parts[0] == 'src':
                    problems.append('%s includes "%s", which is for tests only' % (relative, header))
            elif kind == '"' and in_src and not (path.parent / header).exists():
                problems.append('%s includes "%s": name the room ("room/file.h")' % (relative, header))
            elif kind == '<':
                for prefix in sorted(THIRD_PARTY, key=len, reverse=True):
                    if header == prefix or header.startswith(prefix + '/'):
                        if room not in THIRD_PARTY[prefix]:
                            problems.append('%s includes <%s>, which belongs to room %s' % (relative, header, '/'.join(sorted(THIRD_PARTY[prefix]))))
                        elif path.suffix == '.h' and 'internal' not in relative.parts and in_src:
                            problems.append('%s includes <%s>: third-party headers stay in .cc files and internal/' % (relative, header))
                        break
    for room, between in arrows.items():
        problems += folder_problems(room, between)
    for p in problems:
        print(p)
    print('%d files of %d rooms checked, %d problems' % (checked, len(rooms), len(problems)))
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ROOT / 'build/release'))
