#!/usr/bin/env python3
"""Writes rules.json: small rounds, and the model after each by the formulas of the papers.

    python3 src/federated/testdata/rules.py > src/federated/testdata/rules.json

The computation is independent of the C++ code: plain loops over lists, exact fractions where the
formula has no root. Inputs are multiples of 1/64, so that floats hold them exactly. The variant of
each formula is in the docstring of its function.
"""
import json
import math
import random
from fractions import Fraction as F


def numbers(rng, n, scale=2):
    return [F(rng.randint(-64 * scale, 64 * scale), 64) for _ in range(n)]


def weights(samples, scales):
    total = sum(F(n) * s for n, s in zip(samples, scales))
    return [F(n) * s / total for n, s in zip(samples, scales)]


def combine(factors, updates):
    return [sum(f * u[j] for f, u in zip(factors, updates)) for j in range(len(updates[0]))]


def add(model, step, rate=1):
    return [w + rate * s for w, s in zip(model, step)]


class FedAvg:
    """McMahan et al. 2017, algorithm 1: w += sum n_k/n (w_k - w)."""

    def __init__(self, rate=1, uniform=False):
        self.rate, self.uniform = rate, uniform

    def round(self, model, r):
        samples = [1] * len(r['updates']) if self.uniform else r['samples']
        return add(model, combine(weights(samples, r['scales']), r['updates']), self.rate)


class FedAvgM:
    """Hsu et al. 2019: v = beta v + mean; w += rate v. v starts at 0."""

    def __init__(self, beta, rate):
        self.beta, self.rate, self.v = beta, rate, None

    def round(self, model, r):
        mean = combine(weights(r['samples'], r['scales']), r['updates'])
        self.v = mean if self.v is None else [self.beta * v + m for v, m in zip(self.v, mean)]
        return add(model, self.v, self.rate)


class FedBuff:
    """Nguyen et al. 2022, algorithm 1: mean = 1/K sum s(tau) u, with server momentum as in FedAvgM."""

    def __init__(self, beta, rate):
        self.beta, self.rate, self.v = beta, rate, None

    def round(self, model, r):
        k = len(r['updates'])
        mean = combine([s / k for s in r['scales']], r['updates'])
        self.v = mean if self.v is None else [self.beta * v + m for v, m in zip(self.v, mean)]
        return add(model, self.v, self.rate)


class Adaptive:
    """Reddi et al. 2021, algorithm 2: w += rate m/(sqrt(v) + tau). v starts at tau^2, no bias correction."""

    def __init__(self, kind, rate, beta1, beta2, tau):
        self.kind, self.rate, self.beta1, self.beta2, self.tau = kind, rate, beta1, beta2, tau
        self.m = self.v = None

    def round(self, model, r):
        step = combine(weights(r['samples'], r['scales']), r['updates'])
        self.m = self.m or [F(0)] * len(step)
        self.v = self.v or [self.tau ** 2] * len(step)
        self.m = [self.beta1 * m + (1 - self.beta1) * d for m, d in zip(self.m, step)]
        if self.kind == 'FedAdagrad':
            self.v = [v + d * d for v, d in zip(self.v, step)]
        elif self.kind == 'FedAdam':
            self.v = [self.beta2 * v + (1 - self.beta2) * d * d for v, d in zip(self.v, step)]
        else:
            sign = lambda x: (x > 0) - (x < 0)
            self.v = [v - (1 - self.beta2) * d * d * sign(v - d * d) for v, d in zip(self.v, step)]
        return [w + float(self.rate) * float(m) / (math.sqrt(v) + float(self.tau))
                for w, m, v in zip(model, self.m, self.v)]


class Scaffold:
    """Karimireddy et al. 2020, algorithm 1: w += rate 1/|S| sum u; c += 1/N sum dc. Staleness weighs u."""

    def __init__(self, rate, clients):
        self.rate, self.clients, self.c = rate, clients, None

    def round(self, model, r):
        n = len(r['updates'])
        self.c = self.c or [F(0)] * len(model)
        change = combine([F(1)] * n, r['controls'])
        self.c = [c + d / max(self.clients, n) for c, d in zip(self.c, change)]
        return add(model, combine(weights([1] * n, r['scales']), r['updates']), self.rate)


class QFair:
    """Li et al. 2020, algorithm 2 (q-FedAvg), with dw = -L u: w -= sum F^q dw / sum h,
    h = q F^(q-1) |dw|^2 + L F^q. Staleness weighs both sums."""

    def __init__(self, q, rate):
        self.q, self.lipschitz = q, 1 / rate

    def round(self, model, r):
        big, q = self.lipschitz, self.q
        deltas, total = [], F(0)
        for u, loss, s in zip(r['updates'], r['losses'], r['scales']):
            dw = [-big * x for x in u]
            deltas.append([s * loss ** q * x for x in dw])
            total += s * (q * loss ** (q - 1) * sum(x * x for x in dw) + big * loss ** q)
        return [w - sum(d[j] for d in deltas) / total for j, w in enumerate(model)]


class NormClipping:
    """The weighted mean of u min(1, C/|u|); C fixed, or a multiple of the median norm."""

    def __init__(self, norm=0, factor=1):
        self.norm, self.factor = norm, factor

    def round(self, model, r):
        norms = [math.sqrt(sum(x * x for x in u)) for u in r['updates']]
        limit = self.norm or self.factor * middle(norms)
        factors = [float(w) * min(1, limit / n) for w, n in zip(weights(r['samples'], r['scales']), norms)]
        return add(model, combine(factors, r['updates']))


def middle(values):
    values, n = sorted(values), len(values)
    return values[n // 2] if n % 2 else (values[n // 2 - 1] + values[n // 2]) / 2


class Median:
    """Yin et al. 2018, option I: by coordinate; of an even number the mean of the two in the middle."""

    def round(self, model, r):
        return [w + middle([u[j] for u in r['updates']]) for j, w in enumerate(model)]


class TrimmedMean:
    """Yin et al. 2018, option II: floor(trim n) values dropped at each end."""

    def __init__(self, trim):
        self.trim = trim

    def round(self, model, r):
        cut = math.floor(self.trim * len(r['updates']))
        out = []
        for j, w in enumerate(model):
            values = sorted(u[j] for u in r['updates'])
            values = values[cut:len(values) - cut]
            out.append(w + sum(values) / len(values))
        return out


def distance(a, b):
    return sum((x - y) ** 2 for x, y in zip(a, b))


def krum_scores(updates, f):
    """Sums over the n - f - 2 nearest others, at least one; ties go to the first."""
    count = max(len(updates) - f - 2, 1)
    return [sum(sorted(distance(u, v) for j, v in enumerate(updates) if j != i)[:count]) for i, u in enumerate(updates)]


class Krum:
    """Blanchard et al. 2017: the mean of the m updates with the smallest scores (m = 1: Krum)."""

    def __init__(self, f, m):
        self.f, self.m = f, m

    def round(self, model, r):
        scores = krum_scores(r['updates'], self.f)
        best = sorted(range(len(scores)), key=lambda i: (scores[i], i))[:self.m]
        return add(model, combine([F(1, self.m)] * self.m, [r['updates'][i] for i in best]))


class Bulyan:
    """El Mhamdi et al. 2018: n - 2f winners of Krum, one after the other; then by coordinate the mean of
    the n - 4f values closest to the median."""

    def __init__(self, f):
        self.f = f

    def round(self, model, r):
        left, selected, n = list(r['updates']), [], len(r['updates'])
        while len(selected) < n - 2 * self.f:
            scores = krum_scores(left, self.f)
            selected.append(left.pop(scores.index(min(scores))))
        out = []
        for j, w in enumerate(model):
            values = sorted(u[j] for u in selected)
            center = middle(values)
            values.sort(key=lambda x: (abs(x - center), x))
            values = values[:n - 4 * self.f]
            out.append(w + sum(values) / len(values))
        return out


class Rfa:
    """Pillutla et al. 2022, algorithm 2 (smoothed Weiszfeld), from the weighted mean on."""

    def __init__(self, iterations, smoothing):
        self.iterations, self.smoothing = iterations, smoothing

    def round(self, model, r):
        given = [float(w) for w in weights(r['samples'], r['scales'])]
        updates = [[float(x) for x in u] for u in r['updates']]
        factors = given
        for _ in range(self.iterations):
            center = combine(factors, updates)
            raw = [g / max(self.smoothing, math.sqrt(distance(center, u))) for g, u in zip(given, updates)]
            factors = [x / sum(raw) for x in raw]
        return add(model, combine(factors, updates))


def case(name, parameters, rule, clients=5, size=6, rounds=3, seed=1, outlier=False):
    rng = random.Random('%s %d' % (name, seed))
    model = numbers(rng, size)
    out = {'name': name, 'parameters': parameters, 'variant': ' '.join(type(rule).__doc__.split()),
           'model': [float(x) for x in model], 'rounds': []}
    for _ in range(rounds):
        r = {'samples': [rng.randint(1, 9) for _ in range(clients)],
             'scales': [F(1, rng.choice([1, 1, 2, 4])) for _ in range(clients)],
             'losses': [F(rng.randint(16, 160), 64) for _ in range(clients)],
             'updates': [numbers(rng, size) for _ in range(clients)],
             'controls': [numbers(rng, size) for _ in range(clients)]}
        if outlier:
            r['updates'][rng.randrange(clients)] = numbers(rng, size, 500)
        model = rule.round(model, r)
        shown = {key: [[float(y) for y in x] if isinstance(x, list) else float(x) for x in value] for key, value in r.items()}
        shown['samples'] = r['samples']
        shown['expected'] = [float(x) for x in model]
        if isinstance(rule, Scaffold):
            shown['expectedControl'] = [float(x) for x in rule.c]
        out['rounds'].append(shown)
    return out


def main():
    cases = [
        case('FedAvg', {}, FedAvg()),
        case('FedAvg', {'weighting': 'uniform', 'learningRate': 0.5}, FedAvg(F(1, 2), True), seed=2),
        case('FedProx', {'proximal': 0.1}, FedAvg()),
        case('FedAvgM', {'momentum': 0.75, 'learningRate': 0.5}, FedAvgM(F(3, 4), F(1, 2))),
        case('FedBuff', {}, FedBuff(F(0), F(1))),
        case('FedBuff', {'momentum': 0.5, 'learningRate': 0.25}, FedBuff(F(1, 2), F(1, 4)), seed=2),
        case('FedAdagrad', {'learningRate': 0.125, 'tau': 0.25}, Adaptive('FedAdagrad', F(1, 8), F(0), None, F(1, 4))),
        case('FedAdam', {'learningRate': 0.125, 'beta1': 0.75, 'beta2': 0.875, 'tau': 0.25},
             Adaptive('FedAdam', F(1, 8), F(3, 4), F(7, 8), F(1, 4))),
        case('FedYogi', {'learningRate': 0.125, 'beta1': 0.75, 'beta2': 0.875, 'tau': 0.25},
             Adaptive('FedYogi', F(1, 8), F(3, 4), F(7, 8), F(1, 4))),
        case('SCAFFOLD', {'clients': 8}, Scaffold(F(1), 8)),
        case('SCAFFOLD', {'learningRate': 0.5}, Scaffold(F(1, 2), 0), seed=2),
        case('qFFL', {'q': 2, 'clientLearningRate': 0.25}, QFair(2, F(1, 4))),
        case('qFFL', {'q': 1, 'clientLearningRate': 0.5}, QFair(1, F(1, 2)), seed=2),
        case('NormClipping', {'norm': 2}, NormClipping(norm=2)),
        case('NormClipping', {'factor': 0.5}, NormClipping(factor=0.5), seed=2, clients=4),
        case('Median', {}, Median(), outlier=True),
        case('Median', {}, Median(), clients=8, seed=2),
        case('TrimmedMean', {'trim': 0.25}, TrimmedMean(F(1, 4)), clients=9, outlier=True),
        case('Krum', {'byzantine': 1}, Krum(1, 1), clients=7, outlier=True),
        case('MultiKrum', {'byzantine': 2, 'selected': 3}, Krum(2, 3), clients=9, outlier=True),
        case('MultiKrum', {'byzantine': 1}, Krum(1, 6), clients=7, seed=2),
        case('Bulyan', {'byzantine': 1}, Bulyan(1), clients=8, outlier=True),
        case('Bulyan', {'byzantine': 2}, Bulyan(2), clients=13, seed=2),
        case('RFA', {'iterations': 5, 'smoothing': 0.001}, Rfa(5, 0.001), outlier=True),
        case('RFA', {}, Rfa(4, 1e-6), seed=2),
    ]
    lines = []
    for one in cases:
        rounds = ',\n  '.join(json.dumps(r) for r in one.pop('rounds'))
        lines.append('%s, "rounds": [\n  %s]}' % (json.dumps(one)[:-1], rounds))
    print('{"cases": [\n%s\n]}' % ',\n'.join(lines))


if __name__ == '__main__':
    main()
