#!/usr/bin/env python3
"""Trains a random forest on a csv file with scikit-learn, and hands over an ONNX file.

    pip install scikit-learn skl2onnx      # in the image; sdk/python/varda_worker.py beside this file

Parameters of the TrainingModel: trees (100), depth (8).
"""
import numpy
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

from varda_worker import Training


def table(path):
    rows = numpy.genfromtxt(path, delimiter=',', skip_header=1, dtype=numpy.float32)
    return rows[:, :-1], rows[:, -1].astype(int)


with Training() as run:
    features, labels = table(run.dataset)
    if run.evaluation:
        test_features, test_labels = table(run.evaluation)
    else:
        features, test_features, labels, test_labels = train_test_split(features, labels, test_size=0.1, random_state=1)
    trees, at_once = run.parameter('trees', 100), 10
    forest = RandomForestClassifier(n_estimators=0, max_depth=run.parameter('depth', 8), warm_start=True, random_state=1)
    while forest.n_estimators < trees:  # a few trees at a time, for the progress
        forest.n_estimators = min(trees, forest.n_estimators + at_once)
        forest.fit(features, labels)
        run.progress(epoch=forest.n_estimators, epochs=trees, loss=1 - forest.score(test_features, test_labels))
    accuracy = forest.score(test_features, test_labels)
    try:
        from skl2onnx import to_onnx
        model, kind = run.output / 'model.onnx', 'onnx'
        model.write_bytes(to_onnx(forest, features[:1]).SerializeToString())
    except ImportError:  # the registry takes any file
        import pickle
        model, kind = run.output / 'model.pickle', 'pickle'
        model.write_bytes(pickle.dumps(forest))
    run.finish(model, metrics={'accuracy': accuracy}, format=kind, samples=len(labels))
