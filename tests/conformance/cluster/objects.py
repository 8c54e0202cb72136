"""The applied objects. Pods carry no service-account token. They tolerate the taints of a failing
node and come back with the node."""
EDGE_LABEL = 'node-role.kubernetes.io/edge'
MODEL_LABEL = 'edgeai.io/inference-model'
EVERYTHING = [{'operator': 'Exists'}]


def namespace(name):
    levels = {'pod-security.kubernetes.io/' + mode: 'privileged' for mode in ('enforce', 'audit', 'warn')}
    return {'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': name, 'labels': dict(levels, **{'app.kubernetes.io/part-of': 'varda-conformance'})}}


def on_node(name):
    return {'matchFields': [{'key': 'metadata.name', 'operator': 'In', 'values': [name]}]}


CLOUD = {'matchExpressions': [{'key': EDGE_LABEL, 'operator': 'DoesNotExist'}]}


def pod_spec(container, volume, place, restart, host_network):
    """One container with a ConfigMap at /data, on a node that the selector term `place` allows."""
    container.setdefault('imagePullPolicy', 'IfNotPresent')
    container['volumeMounts'] = [{'name': 'data', 'mountPath': '/data', 'readOnly': True}]
    return {'containers': [container], 'volumes': [{'name': 'data', 'configMap': {'name': volume}}], 'restartPolicy': restart,
            'hostNetwork': host_network, 'automountServiceAccountToken': False, 'enableServiceLinks': False,
            'terminationGracePeriodSeconds': 5, 'tolerations': EVERYTHING,
            'affinity': {'nodeAffinity': {'requiredDuringSchedulingIgnoredDuringExecution': {'nodeSelectorTerms': [place]}}}}


def file_server(image, port, place, host_network):
    container = {'name': 'files', 'image': image, 'args': ['artifacts', 'serve', '/data', '--listen', '$(POD_IP):%d' % port],
                 'env': [{'name': 'POD_IP', 'valueFrom': {'fieldRef': {'fieldPath': 'status.podIP'}}}],
                 'ports': [{'name': 'http', 'containerPort': port}],
                 'readinessProbe': {'tcpSocket': {'port': port}, 'periodSeconds': 2}}
    labels = {'app': 'files'}
    return {'apiVersion': 'apps/v1', 'kind': 'Deployment', 'metadata': {'name': 'files'},
            'spec': {'replicas': 1, 'strategy': {'type': 'Recreate'}, 'selector': {'matchLabels': labels},
                     'template': {'metadata': {'labels': labels}, 'spec': pod_spec(container, 'archives', place, 'Always', host_network)}}}


def job(name, image, args, place, report):
    """A run of varda. With `report` the summary is the pod's termination message, so that no tunnel
    to the node's logs is needed."""
    args = list(args) + (['--report', '/dev/termination-log'] if report else [])
    container = {'name': 'varda', 'image': image, 'args': args, 'terminationMessagePolicy': 'FallbackToLogsOnError'}
    return {'apiVersion': 'batch/v1', 'kind': 'Job', 'metadata': {'name': name},
            'spec': {'backoffLimit': 30, 'template': {'metadata': {'labels': {'app': name}},
                                                      'spec': pod_spec(container, 'test-split', place, 'OnFailure', False)}}}


def model(name, layer, entries, target, port, node=None, replicas=1, service=None):
    """entries: [(version, url, sha256)]"""
    spec = {'modelName': name, 'deployToLayer': layer, 'frameworkType': 'onnx', 'targetVersion': target, 'servingPort': port,
            'replicas': replicas, 'manifest': [{'version': v, 'downloadURL': u, 'sha256sum': s} for v, u, s in entries]}
    if node:
        spec['nodeName'] = node
    if service:
        spec['service'] = {'type': service}
    return {'apiVersion': 'ai.kubeedge.io/v1alpha1', 'kind': 'InferenceModel', 'metadata': {'name': name}, 'spec': spec}


def dataset(name, path, kind, node):
    return {'apiVersion': 'edgeai.io/v1alpha1', 'kind': 'Dataset', 'metadata': {'name': name},
            'spec': {'dataUrl': path, 'format': kind, 'nodeName': node}}
