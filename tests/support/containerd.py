"""A private containerd with its own directories and socket, and images made of programs of this
machine. Needs root.

The containerd ends with the process that created it. The next one removes the containers, mounts,
directories and bridge that a killed process left."""
import contextlib, ctypes, hashlib, io, json, os, pathlib, shutil, signal, subprocess, tarfile, tempfile, unittest

import machine as m

PAUSE = 'varda.test/pause:1'
DEPS = m.ROOT / '.deps/containerd/usr'  # `make deps` unpacks it there
CNI = str(DEPS / 'lib/cni') if DEPS.is_dir() else '/usr/lib/cni'
PATH = os.pathsep.join([str(DEPS / 'bin'), str(DEPS / 'sbin'), os.environ.get('PATH', os.defpath), '/usr/sbin', '/sbin'])
ENVIRONMENT = dict(os.environ, PATH=PATH)
PREFIX = 'varda-containerd-'
OWNER = 'owner.json'
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)  # loaded early, because few calls are safe between fork and exec


def missing():
    """The reason why containerd cannot run here, or None."""
    if os.geteuid() != 0:
        return 'containerd needs root'
    for program in 'containerd', 'runc', 'ctr':
        if not shutil.which(program, path=PATH):
            return '%s is not installed' % program
    return None


def libraries(program):
    """The shared libraries of a program, with its loader."""
    # fails for static programs
    shown = subprocess.run(['ldd', program], capture_output=True, text=True)
    return [word for line in shown.stdout.splitlines() for word in line.split() if word.startswith('/')] if shown.returncode == 0 else []


def oci_archive(path, name, programs, **config):
    """An OCI archive with one layer: the programs in /bin, their libraries at the paths of this
    machine, and a /tmp."""
    layer = io.BytesIO()
    seen = set()
    with tarfile.open(fileobj=layer, mode='w') as tar:
        def add(source, target):
            if target in seen:
                return
            seen.add(target)
            info = tarfile.TarInfo(target.lstrip('/'))
            info.mode, info.size = 0o755, os.path.getsize(source)
            with open(source, 'rb') as f:
                tar.addfile(info, f)
        for directory, mode in (('bin', 0o755), ('tmp', 0o1777)):
            info = tarfile.TarInfo(directory)
            info.type, info.mode = tarfile.DIRTYPE, mode
            tar.addfile(info)
        for program in programs:
            source = program if '/' in program else shutil.which(program)
            add(source, '/bin/' + os.path.basename(program))
            for library in libraries(source):
                add(library, library)
    blobs = {}

    def blob(data, kind=None):
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {'digest': 'sha256:' + digest, 'size': len(data), **({'mediaType': kind} if kind else {})}

    def document(value, kind):
        return blob(json.dumps(value).encode(), kind)
    packed = blob(layer.getvalue(), 'application/vnd.oci.image.layer.v1.tar')
    image = document({'architecture': {'x86_64': 'amd64', 'aarch64': 'arm64'}.get(os.uname().machine, os.uname().machine), 'os': 'linux',
                      'config': {'Env': ['PATH=/bin'], **config}, 'rootfs': {'type': 'layers', 'diff_ids': [packed['digest']]}},
                     'application/vnd.oci.image.config.v1+json')
    manifest = document({'schemaVersion': 2, 'mediaType': 'application/vnd.oci.image.manifest.v1+json', 'config': image, 'layers': [packed]},
                        'application/vnd.oci.image.manifest.v1+json')
    manifest['annotations'] = {'io.containerd.image.name': name, 'org.opencontainers.image.ref.name': name.rpartition(':')[2]}
    files = {'oci-layout': json.dumps({'imageLayoutVersion': '1.0.0'}).encode(),
             'index.json': json.dumps({'schemaVersion': 2, 'manifests': [manifest]}).encode(),
             **{'blobs/sha256/' + digest: data for digest, data in blobs.items()}}
    with tarfile.open(path, 'w') as tar:
        for file, data in files.items():
            info = tarfile.TarInfo(file)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def born(pid):
    """The start time of a process in ticks since boot, or None. Pid and start time identify one
    process."""
    try:
        state, *rest = pathlib.Path('/proc/%d/stat' % pid).read_text().rpartition(')')[2].split()
    except OSError:
        return None
    return None if state in 'ZX' else rest[18]


def of(directory):
    """Pids of the processes of the containerd in a directory: itself, its shims by their sockets,
    its containers by their root."""
    for pid in map(int, filter(str.isdigit, os.listdir('/proc'))):
        with contextlib.suppress(OSError):
            words = pathlib.Path('/proc/%d/cmdline' % pid).read_text().split('\0')
            mounts = [line.split() for line in pathlib.Path('/proc/%d/mountinfo' % pid).read_text().splitlines()]
            if {str(directory / 'c.sock'), str(directory / 'config.toml')} & set(words) or \
                    any(m[4] == '/' and '/%s/' % directory.name in m[3] for m in mounts):
                yield pid


def sweep(directory):
    """Ends all processes and removes all files of a containerd."""
    for _ in range(10):  # shims end the children of containers, and are then ended too
        found = list(of(directory))
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            break
    with open('/proc/self/mounts') as mounts:
        points = [line.split()[1] for line in mounts if line.split()[1].startswith(str(directory) + '/')]
    for point in sorted(points, reverse=True):
        subprocess.run(['umount', '-l', point], capture_output=True)
    shutil.rmtree(directory, ignore_errors=True)


def sweep_dead():
    """Removes the leftovers of every containerd with a killed owner."""
    for directory in pathlib.Path('/tmp').glob(PREFIX + '*'):
        with contextlib.suppress(OSError, ValueError, KeyError):
            owner = json.loads((directory / OWNER).read_text())
            if born(owner['pid']) == owner['born']:
                continue
            sweep(directory)
            for plugin in (owner['cni'] or {}).get('plugins', []):
                if plugin.get('type') == 'bridge':
                    if shutil.which('ip'):
                        subprocess.run(['ip', 'link', 'delete', plugin['bridge']], capture_output=True)
                    shutil.rmtree(plugin['ipam']['dataDir'], ignore_errors=True)


class NoContainers(unittest.SkipTest):
    """This machine cannot run containers for any user."""


class Containerd:
    def __init__(self, cni=None):
        """`cni` is the network configuration of pods; None leaves only the host's network."""
        sweep_dead()
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix=PREFIX, dir='/tmp'))
        (self.dir / OWNER).write_text(json.dumps({'pid': os.getpid(), 'born': born(os.getpid()), 'cni': cni}))
        self.socket = str(self.dir / 'c.sock')
        (self.dir / 'cni').mkdir()
        if cni:
            (self.dir / 'cni/10-test.conflist').write_text(json.dumps(cni))
        (self.dir / 'config.toml').write_text('''version = 2
root = "%(dir)s/root"
state = "%(dir)s/state"
[grpc]
  address = "%(dir)s/c.sock"
[ttrpc]
  address = "%(dir)s/t.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "%(dir)s/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "%(pause)s"
  restrict_oom_score_adj = true
  disable_apparmor = true
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "%(bin)s"
    conf_dir = "%(dir)s/cni"
''' % {'dir': self.dir, 'pause': PAUSE, 'bin': CNI})
        self.process = None
        try:
            self.start()
            self.import_image(PAUSE, ['sleep'], Entrypoint=['/bin/sleep', 'infinity'])
            if why := self.cannot_run():
                raise NoContainers('no container runs here: ' + why)
        except BaseException:
            self.close()
            raise

    def start(self):
        with open(self.dir / 'containerd.log', 'a') as log:
            self.process = subprocess.Popen(['containerd', '--config', str(self.dir / 'config.toml')], stdout=log, stderr=log, env=ENVIRONMENT,
                                            preexec_fn=lambda: LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL))
        m.wait_until('containerd', lambda: self.process.poll() is not None or self.ctr('version', check=False).returncode == 0)
        if self.process.poll() is not None:
            raise NoContainers('containerd does not start: ' + (self.dir / 'containerd.log').read_text()[-500:])

    def cannot_run(self):
        """The reason why ctr cannot run a container here, or None."""
        done = self.ctr('run', '--rm', '--net-host', '--snapshotter', 'native', '--memory-limit', '67108864', '--cpu-quota', '50000', '--cpu-period', '100000',
                        PAUSE, 'probe', '/bin/sleep', '0', check=False)
        return None if done.returncode == 0 else (done.stderr.strip() or 'exit %d' % done.returncode)

    def stop(self, how=signal.SIGKILL):
        self.process.send_signal(how)
        self.process.wait()

    def ctr(self, *args, check=True):
        done = subprocess.run(['ctr', '-a', self.socket, '-n', 'k8s.io', *args], capture_output=True, text=True, env=ENVIRONMENT)
        if check and done.returncode != 0:
            raise m.Failed('ctr %s: %s' % (' '.join(args), done.stderr))
        return done

    def import_image(self, name, programs, **config):
        archive = oci_archive(self.dir / 'image.tar', name, programs, **config)
        self.ctr('images', 'import', '--snapshotter', 'native', str(archive))

    def tasks(self):
        """{container id: pid} of the running tasks, sandboxes included."""
        lines = self.ctr('tasks', 'list').stdout.splitlines()[1:]
        return {line.split()[0]: int(line.split()[1]) for line in lines if line.split()[2] == 'RUNNING'}

    def containers(self):
        return self.ctr('containers', 'list', '-q').stdout.split()

    def labels(self, container):
        try:
            return json.loads(self.ctr('containers', 'info', container).stdout)['Labels']
        except m.Failed as gone:  # the container disappeared between the list and this call
            if 'not found' not in str(gone):
                raise
            return {}

    def close(self):
        with contextlib.suppress(Exception):
            for container in self.tasks():
                self.ctr('tasks', 'kill', '-s', 'SIGKILL', container, check=False)
            m.wait_until('no task', lambda: not self.tasks(), 30)
            for container in self.containers():
                self.ctr('tasks', 'delete', '-f', container, check=False)
                self.ctr('containers', 'delete', container, check=False)
        with contextlib.suppress(Exception):
            self.stop(signal.SIGTERM)
        sweep(self.dir)  # files that could not be deleted before
