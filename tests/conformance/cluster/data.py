"""The data of the run: two trained versions of a digit classifier as archives, and the test split
of their data set."""
import base64, gzip, hashlib, io, json, pathlib, struct, tarfile

DIGITS = pathlib.Path(__file__).resolve().parents[3] / 'examples/digits'
IMAGES, LABELS = 'test-images.idx3-ubyte', 'test-labels.idx1-ubyte'


def archive(directory):
    """A .tar.gz of a folder, with the same bytes on every machine."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w', format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(directory.iterdir()):
            entry = tarfile.TarInfo(directory.name + '/' + path.name)
            entry.size, entry.mode = path.stat().st_size, 0o644
            with open(path, 'rb') as f:
                tar.addfile(entry, f)
    packed = io.BytesIO()
    with gzip.GzipFile(filename='', mode='wb', fileobj=packed, mtime=0) as f:
        f.write(out.getvalue())
    return packed.getvalue()


class Version:
    def __init__(self, name):
        self.name, self.file = name, 'digits-%s.tar.gz' % name
        self.bytes = archive(DIGITS / 'models' / name)
        self.sha256 = hashlib.sha256(self.bytes).hexdigest()
        report = json.loads((DIGITS / 'report.json').read_text())
        self.accuracy = next(m['correct'] / m['samples'] for m in report['models'] if m['version'] == name)


def versions():
    return {name: Version(name) for name in ('3', '4')}


def samples():
    """The number of images in the test split, from its IDX header."""
    return struct.unpack('>I', (DIGITS / IMAGES).read_bytes()[4:8])[0]


def config_map(name, files):
    return {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': name},
            'binaryData': {file: base64.b64encode(content).decode() for file, content in files.items()}}


def test_split():
    return config_map('test-split', {name: (DIGITS / name).read_bytes() for name in (IMAGES, LABELS)})
