#!/usr/bin/python3
"""Writes slda.json: a streaming linear discriminant analysis, computed with numpy in FP64.

    /usr/bin/python3 src/train/testdata/make_slda.py

Hayes and Kanan 2020, equations 2 to 6, sample by sample with whole matrices. As in slda.h, the first
sample of a class leaves the covariance as it is (factor t / (t + 1)).
"""
import json
import pathlib

import numpy as np

rng = np.random.default_rng(7)
FEATURES, CLASSES, SHRINKAGE = 4, 3, 1e-2


def listed(array):
    return [round(float(v), 9) for v in np.asarray(array).ravel()]


centres = rng.normal(size=(CLASSES, FEATURES)) * 2
labels = [0, 0, 1, 0, 1, 1, 2, 0, 2, 1, 2, 2, 0, 1]  # class 2 appears late
samples = np.round(np.array([centres[k] + rng.normal(size=FEATURES) for k in labels]), 4)

means, counts = np.zeros((CLASSES, FEATURES)), np.zeros(CLASSES)
covariance, t = np.zeros((FEATURES, FEATURES)), 0
steps = []
for z, k in zip(samples, labels):
    delta = np.zeros_like(covariance)
    if counts[k] > 0:
        d = (z - means[k])[:, None]
        delta = t / (t + 1) * d @ d.T
    covariance = (t * covariance + delta) / (t + 1)
    means[k] = (counts[k] * means[k] + z) / (counts[k] + 1)
    counts[k] += 1
    t += 1
    if t in (7, len(labels)):
        precision = np.linalg.inv((1 - SHRINKAGE) * covariance + SHRINKAGE * np.eye(FEATURES))
        w = precision @ means.T
        b = -0.5 * np.sum(means.T * w, axis=0)
        steps.append({'samples': t, 'weights': listed(w), 'bias': listed(b)})

path = pathlib.Path(__file__).with_name('slda.json')
path.write_text(json.dumps({'features': FEATURES, 'classes': CLASSES, 'shrinkage': SHRINKAGE, 'x': [listed(s) for s in samples], 'y': labels,
                            'steps': steps}, indent=1) + '\n')
