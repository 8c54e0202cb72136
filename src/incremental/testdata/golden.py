#!/usr/bin/env python3
"""Expected numbers of the statistics, from other formulas than those of the room.

    python3 src/incremental/testdata/golden.py > src/incremental/testdata/numbers.json

McNemar: exact integers instead of logarithms. Kolmogorov-Smirnov: the samples one by one, and the
theta series that converges for small arguments. Page-Hinkley: each sum from its definition.
"""
import fractions, json, math

SEED = 20261128


def draw(state):
    """A linear congruential generator (Knuth's MMIX), so that the script needs no library."""
    return (state * 6364136223846793005 + 1442695040888963407) % 2 ** 64


def histogram(seed, samples, bins, power):
    out, state = [0] * bins, seed
    for _ in range(samples):
        state = draw(state)
        out[min(bins - 1, int((state / 2 ** 64) ** power * bins))] += 1
    return out


def coins(k, n):
    return sum(math.comb(n, i) for i in range(k + 1)), math.comb(n, k), 2 ** n


def mcnemar(b, c):
    n, k = b + c, min(b, c)
    if n == 0:
        return dict(exact=1, midp=1, chiSquare=1, chiSquareCorrected=1)
    tail, point, whole = coins(k, n)
    exact = min(fractions.Fraction(1), fractions.Fraction(2 * tail, whole))
    midp = 1 - fractions.Fraction(point, 2 * whole) if b == c else fractions.Fraction(2 * tail - point, whole)
    chi = (b - c) ** 2 / n
    corrected = max(0, abs(b - c) - 1) ** 2 / n
    tail_of = lambda x: math.erfc(math.sqrt(x / 2))
    return dict(exact=float(exact), midp=float(midp), chiSquare=tail_of(chi), chiSquareCorrected=tail_of(corrected))


def psi(reference, recent):
    p = [max(x / sum(recent), 1e-4) for x in recent]
    q = [max(x / sum(reference), 1e-4) for x in reference]
    # As two Kullback-Leibler divergences.
    return sum(a * math.log(a / b) for a, b in zip(p, q)) + sum(b * math.log(b / a) for a, b in zip(p, q))


def ks(reference, recent):
    expand = lambda h: [i for i, count in enumerate(h) for _ in range(count)]
    a, b = expand(reference), expand(recent)
    distance = max(abs(sum(x <= v for x in a) / len(a) - sum(x <= v for x in b) / len(b)) for v in set(a + b))
    root = math.sqrt(len(a) * len(b) / (len(a) + len(b)))
    t = (root + 0.12 + 0.11 / root) * distance
    below = math.sqrt(2 * math.pi) / t * sum(math.exp(-(2 * k - 1) ** 2 * math.pi ** 2 / (8 * t * t)) for k in range(1, 200)) if t > 0 else 0
    return dict(distance=distance, probability=max(0.0, 1 - below))


def page_hinkley(values, delta):
    means = [sum(values[:t]) / t for t in range(1, len(values) + 1)]
    sums = [sum(means[i] - values[i] - delta for i in range(t)) for t in range(1, len(values) + 1)]
    return sums[-1] - min(sums)


def main():
    pairs = [(0, 0), (0, 1), (1, 0), (1, 7), (7, 1), (5, 5), (2, 54), (54, 2), (0, 10), (10, 12), (86, 150), (40, 60), (500, 560), (3000, 3200)]
    histograms = [(histogram(SEED, 300, 20, 1), histogram(SEED + 1, 200, 20, 1)),
                  (histogram(SEED, 300, 20, 1), histogram(SEED + 2, 200, 20, 1.3)),
                  (histogram(SEED, 300, 20, 0.3), histogram(SEED + 3, 300, 20, 1)),
                  (histogram(SEED, 1000, 10, 0.2), histogram(SEED + 4, 50, 10, 0.25)),
                  ([10, 0, 0, 90], [10, 0, 40, 50]), ([1, 1], [1, 1]), ([5, 0], [0, 5])]
    series = [[0.8] * 5 + [0.5] * 5, [0.9, 0.91, 0.89, 0.9, 0.9], [0.5, 0.6, 0.7, 0.8], [0.9] * 20 + [0.85] * 20, [0.7]]
    print(json.dumps({
        'mcnemar': [dict(onlyBase=b, onlyCandidate=c, **mcnemar(b, c)) for b, c in pairs],
        'histograms': [dict(reference=r, recent=n, psi=psi(r, n), **ks(r, n)) for r, n in histograms],
        'pageHinkley': [dict(values=v, delta=d, statistic=page_hinkley(v, d)) for v in series for d in (0, 0.005, 0.05)],
    }, indent=1))


if __name__ == '__main__':
    main()
