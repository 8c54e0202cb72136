#!/usr/bin/env python3
"""Federated learning, narrated: five nodes hold different digits, and train one model of all digits
without moving an image. Then the same job runs while trainers and the aggregator are killed, one
client sends NaN and one sends hundredfold weights: the result has the same bytes.

Exits 0 only if every step held. Uses free ports and its own data directory, and leaves no file and
no process behind but build/federated.svg.
"""
import json, os, shutil, signal, struct, subprocess

from narrate import Step, answered, check, run, workplace
import chart
import machine as m

NODES = ['edge%d' % number for number in range(5)]
ROUNDS = 20
TRAINER = {'task': 'classification', 'batchSize': 16, 'loss': 'crossEntropy', 'optimizer': {'name': 'sgd', 'learningRate': 0.1}}
HOSTILE = m.ROOT / 'tests/support/hostile_client.py'


def deal(work):
    """Two digits for each node: no node sees what the others have. Returns the number of images by
    node."""
    shape, pixels = m.read_idx(m.DIGITS / 'train-images.idx3-ubyte')
    _, labels = m.read_idx(m.DIGITS / 'train-labels.idx1-ubyte')
    size = shape[1] * shape[2]
    dealt = {}
    for number, node in enumerate(NODES):
        chosen = [i for i, label in enumerate(labels) if label in (2 * number, 2 * number + 1)]
        folder = work / 'data' / node
        folder.mkdir(parents=True)
        (folder / 'train-images.idx3-ubyte').write_bytes(
            struct.pack('>4B3I', 0, 0, 8, 3, len(chosen), *shape[1:]) + b''.join(pixels[i * size:(i + 1) * size] for i in chosen))
        (folder / 'train-labels.idx1-ubyte').write_bytes(struct.pack('>4BI', 0, 0, 8, 1, len(chosen)) + bytes(labels[i] for i in chosen))
        for file in m.DIGITS.glob('test-*-ubyte'):
            shutil.copy(file, folder)
        dealt[node] = len(chosen)
    return dealt


def job(name, model, workers=()):
    return {'apiVersion': 'sedna.io/v1alpha1', 'kind': 'FederatedLearningJob', 'metadata': {'name': name},
            'spec': {'aggregationWorker': {'model': {'name': model}, 'nodeName': 'cloud'},
                     'trainingWorkers': [{'nodeName': node, 'dataset': {'name': node}} for node in NODES] + list(workers),
                     'federated': {'rounds': ROUNDS, 'localEpochs': 1, 'trainer': TRAINER, 'minimumClients': len(NODES) + len(workers),
                                   'roundDeadline': '30s', 'seed': 1, 'evaluation': {'every': 1}}}}
