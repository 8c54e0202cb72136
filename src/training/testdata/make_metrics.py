#!/usr/bin/env python3
"""Writes metrics.json: rows of outputs, and their metrics by scikit-learn 1.2.1 (python3-sklearn of Debian 12).

    python3 make_metrics.py > metrics.json

The test reads the file alone. Scores have four digits, so that equal ones stay equal in FP32.
"""
import json, sys
import numpy as np
from scipy.special import expit, huber, softmax
from sklearn import metrics

rng = np.random.default_rng(7)


def rounded(values):
    return np.round(np.asarray(values, dtype=float), 4)


def areas(truth, scores):
    """The mean over the columns that have both kinds."""
    each = [metrics.roc_auc_score(truth[:, i], scores[:, i]) for i in range(truth.shape[1]) if 0 < truth[:, i].sum() < len(truth)]
    return {'auc': float(np.mean(each))} if each else {}


def classification(name, rows, labels, loss, activation, probabilities):
    labels = np.asarray(labels)
    classes = max(2, rows.shape[1])
    two = classes == 2
    predicted = rows.argmax(axis=1) if rows.shape[1] > 1 else (probabilities[:, 0] > 0.5).astype(int)
    average = {'average': 'binary'} if two else {'average': 'macro'}
    truth = np.eye(classes)[labels]
    if loss == 'crossEntropy':
        value = metrics.log_loss(labels, probabilities / probabilities.sum(axis=1, keepdims=True), labels=range(classes))
    else:
        columns = truth[:, 1:] if rows.shape[1] == 1 else truth
        value = np.mean([metrics.log_loss(columns[:, i], probabilities[:, i], labels=[0, 1]) for i in range(columns.shape[1])])
    score = probabilities[:, -1:] if two else probabilities
    out = {
        'loss': float(value), 'accuracy': metrics.accuracy_score(labels, predicted),
        'precision': metrics.precision_score(labels, predicted, zero_division=0, **average),
        'recall': metrics.recall_score(labels, predicted, zero_division=0, **average),
        'f1': metrics.f1_score(labels, predicted, zero_division=0, **average),
        **areas(truth[:, 1:] if two else truth, score),
    }
    return {'name': name, 'task': 'classification', 'loss': loss, 'activation': activation, 'rows': rows.tolist(), 'labels': labels.tolist(),
            'values': out, 'confusion': metrics.confusion_matrix(labels, predicted, labels=range(classes)).tolist()}


def labels(name, rows, targets, activation, probabilities):
    predicted = (probabilities > 0.5).astype(int)
    macro = {'average': 'macro', 'zero_division': 0}
    out = {
        'loss': float(np.mean([metrics.log_loss(targets[:, i], probabilities[:, i], labels=[0, 1]) for i in range(targets.shape[1])])),
        'accuracy': metrics.accuracy_score(targets, predicted), 'precision': metrics.precision_score(targets, predicted, **macro),
        'recall': metrics.recall_score(targets, predicted, **macro), 'f1': metrics.f1_score(targets, predicted, **macro),
        **areas(targets, rows),
    }
    return {'name': name, 'task': 'multilabel', 'loss': 'binaryCrossEntropy', 'activation': activation, 'rows': rows.tolist(),
            'targets': targets.tolist(), 'values': out, 'confusion': []}


def numbers(name, rows, targets, loss, delta=1.0):
    value = metrics.mean_squared_error(targets, rows) if loss == 'mse' else np.mean(huber(delta, rows - targets))
    out = {'loss': float(value), 'mae': metrics.mean_absolute_error(targets, rows), 'rmse': float(np.sqrt(metrics.mean_squared_error(targets, rows)))}
    return {'name': name, 'task': 'regression', 'loss': loss, 'delta': delta, 'activation': 'scores', 'rows': rows.tolist(),
            'targets': targets.tolist(), 'values': out, 'confusion': []}


def main():
    cases = []
    truth = rng.integers(0, 2, 60)
    chance = np.clip(np.round(0.5 + (truth - 0.5) * 0.4 + rng.normal(0, 0.25, 60), 1), 0.1, 0.9)  # many equal scores
    rows = rounded(np.stack([1 - chance, chance], axis=1))
    rows[rows[:, 0] == rows[:, 1]] = [0.501, 0.499]  # no tie in a row
    cases.append(classification('two classes, probabilities', rows, truth, 'crossEntropy', 'probabilities', rows))
    scores = rounded(rng.normal(0, 1.5, 60) + 2 * truth - 1)[:, None]
    cases.append(classification('two classes, one score', scores, truth, 'binaryCrossEntropy', 'scores', expit(scores)))
    chances = rounded(expit(scores))
    cases.append(classification('two classes, one probability', chances, truth, 'binaryCrossEntropy', 'probabilities', chances))

    truth = rng.choice([0, 1, 2, 4], 80, p=[0.4, 0.3, 0.2, 0.1])  # no sample of class 3
    scores = rounded(rng.normal(0, 1.2, (80, 5)) + 1.5 * np.eye(5)[truth])
    cases.append(classification('five classes, scores', scores, truth, 'crossEntropy', 'scores', softmax(scores, axis=1)))
    scores[:, 3] = -9  # and no prediction
    cases.append(classification('class without samples and predictions', scores, truth, 'crossEntropy', 'scores', softmax(scores, axis=1)))
    logs = np.round(np.log(softmax(scores, axis=1)), 7)
    cases.append(classification('five classes, logarithms', logs, truth, 'crossEntropy', 'logProbabilities', np.exp(logs)))
    cases.append(classification('one class against the rest', scores, truth, 'binaryCrossEntropy', 'scores', expit(scores)))

    targets = rng.integers(0, 2, (50, 4))
    targets[:, 3] = 0  # a label without samples
    scores = rounded(rng.normal(-0.5, 1.3, (50, 4)) + 2 * targets)
    cases.append(labels('labels, scores', scores, targets, 'scores', expit(scores)))
    chances = rounded(np.clip(expit(scores), 0.01, 0.99))
    cases.append(labels('labels, probabilities', chances, targets, 'probabilities', chances))

    rows = rounded(rng.normal(0, 2, (40, 2)))
    targets = rounded(rows + rng.normal(0, 1, (40, 2)))
    cases.append(numbers('numbers, squares', rows, targets, 'mse'))
    cases.append(numbers('numbers, Huber', rows, targets, 'huber', 0.7))
    print('[' + ',\n '.join(json.dumps(case) for case in cases) + ']')


if __name__ == '__main__':
    sys.exit(main())
