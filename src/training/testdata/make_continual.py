#!/usr/bin/python3
"""Writes continual.json: the formulas against forgetting, computed with numpy in FP64.

    /usr/bin/python3 src/training/testdata/make_continual.py

EWC: Kirkpatrick et al. 2017, equation 3. LwF: Li and Hoiem 2018, equations 2 and 3. A-GEM: Chaudhry
et al. 2019, equation 11. The last case is a whole training of a linear classifier with EWC and LwF
by gradient descent: what varda-train must reproduce.
"""
import json
import pathlib

import numpy as np

rng = np.random.default_rng(20240705)


def listed(array):
    return [round(float(v), 9) for v in np.asarray(array).ravel()]


def softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def ewc():
    gradient, weight, start, fisher = (rng.normal(size=6) for _ in range(4))
    fisher = fisher ** 2
    return {'lambda': 2.5, 'gradient': listed(gradient), 'weight': listed(weight), 'start': listed(start),
            'fisher': listed(fisher), 'expected': listed(gradient + 2.5 * fisher * (weight - start))}


def fisher():
    samples = rng.normal(size=(5, 4))
    return {'gradients': [listed(s) for s in samples], 'expected': listed((samples ** 2).mean(axis=0))}


def agem():
    cases = []
    for sign in (1, -1):
        g, r = rng.normal(size=5), rng.normal(size=5)
        if np.sign(g @ r) != sign:
            r = -r
        projected = g if g @ r >= 0 else g - (g @ r) / (r @ r) * r
        cases.append({'gradient': listed(g), 'reference': listed(r), 'expected': listed(projected)})
    return cases


def soft():
    scores = rng.normal(size=4) * 3
    out = []
    for temperature in (1, 2, 5):
        expected = listed(softmax(scores / temperature))
        out.append({'activation': 'scores', 'temperature': temperature, 'row': listed(scores), 'expected': expected})
        p = softmax(scores)
        out.append({'activation': 'probabilities', 'temperature': temperature, 'row': listed(p), 'expected': expected})
        out.append({'activation': 'logProbabilities', 'temperature': temperature, 'row': listed(np.log(p)), 'expected': expected})
    return out


def training():
    """Two features, three classes, scores = x W + b; full batches, plain gradient descent."""
    n, epochs, rate, lamda, temperature, ewc_lambda = 12, 10, 0.3, 0.7, 2.0, 5.0
    x, y = rng.normal(size=(n, 2)), rng.integers(0, 3, size=n)
    weights, bias = rng.normal(size=(2, 3)), rng.normal(size=3)
    x, weights, bias = (np.round(a, 5) for a in (x, weights, bias))
    w, b = weights.copy(), bias.copy()
    teacher = softmax((x @ weights + bias) / temperature)
    target = np.eye(3)[y]
    out = {}
    for name, use_lwf in (('lwf', True), ('plain', False)):
        w, b = weights.copy(), bias.copy()
        for _ in range(epochs):
            z = x @ w + b
            slope = softmax(z) - target
            if use_lwf:
                slope = slope + lamda / temperature * (softmax(z / temperature) - teacher)
            slope /= n
            w, b = w - rate * x.T @ slope, b - rate * slope.sum(axis=0)
        out[name] = {'weights': listed(w), 'bias': listed(b)}
    return {'x': listed(x), 'y': [int(v) for v in y], 'weights': listed(weights), 'bias': listed(bias), 'epochs': epochs, 'rate': rate,
            'lambda': lamda, 'temperature': temperature, 'expected': out}


cases = {'ewc': ewc(), 'fisher': fisher(), 'agem': agem(), 'soften': soft(), 'training': training()}
path = pathlib.Path(__file__).with_name('continual.json')
path.write_text(json.dumps(cases, indent=1) + '\n')
