#!/usr/bin/env python3
"""Writes the generated files below deploy/: crds/kustomization.yaml, which lists the CRDs, and the
directories of kustomize/ that are rendered by Debian's kubectl. varda.yaml is an installation, and
registry.yaml a registry for models on a volume.
`--check` writes no file and fails if one is out of date.
"""
import os, pathlib, subprocess, sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
KUBECTL = os.environ.get('VARDA_KUBECTL', str(ROOT / '.deps/kubectl/usr/bin/kubectl'))
CRDS = ROOT / 'deploy/crds/kustomization.yaml'
RENDERED = {'varda.yaml': 'default', 'registry.yaml': 'artifact-registry-volume'}  # below deploy/, below deploy/kustomize/


def crds():
    names = sorted(path.name for path in CRDS.parent.glob('*.yaml') if path != CRDS)
    return '# Written by `make manifests`: what lies here.\nresources:\n' + ''.join('- %s\n' % name for name in names)


def rendered(directory, kubectl=KUBECTL):
    """The output of `kubectl kustomize` for a directory. Another HOME keeps the user's
    configuration out."""
    done = subprocess.run([kubectl, 'kustomize', str(directory)], capture_output=True, text=True, timeout=120,
                          env={'PATH': os.environ.get('PATH', ''), 'HOME': '/nonexistent'})
    if done.returncode != 0:
        raise SystemExit('%s kustomize %s: %s' % (kubectl, directory, done.stderr.strip()))
    return done.stdout


def main():
    check, stale = '--check' in sys.argv[1:], False

    def put(path, text):
        nonlocal stale
        if path.exists() and path.read_text() == text:
            return
        if check:
            stale = True
            print('%s is stale: run `make manifests` and commit the difference' % path.relative_to(ROOT), file=sys.stderr)
        else:
            path.write_text(text)
            print('wrote %s' % path.relative_to(ROOT))

    put(CRDS, crds())
    for name, directory in RENDERED.items():
        text = rendered(ROOT / 'deploy/kustomize' / directory)
        put(ROOT / 'deploy' / name, '# Written by `make manifests` from deploy/kustomize/%s. Do not edit.\n' % directory + text)
    return 1 if stale else 0


if __name__ == '__main__':
    sys.exit(main())
