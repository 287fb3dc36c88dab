"""Measures of decisions and groups from their equations, of items that count with weights."""

import numpy as np


def curve(scores, labels, weights=None):
    """(precision, recall, F1, threshold) at each distinct score, from the largest down."""
    scores, labels = np.asarray(scores), np.asarray(labels)
    w = np.ones(len(scores)) if weights is None else weights
    found, positive = [], sum(w * labels)
    for threshold in sorted(set(scores), reverse=True):
        taken = sum(w[scores >= threshold])
        hits = sum((w * labels)[scores >= threshold])
        found.append((hits / taken, hits / positive, 2 * hits / (taken + positive), threshold))
    return found


def average_precision(scores, labels, weights=None):
    total, before = 0.0, 0.0
    for precision, recall, *_ in curve(scores, labels, weights):
        total += precision * (recall - before)
        before = recall
    return total


def best_f1(scores, labels, weights=None):
    return max(f1 for _, _, f1, _ in curve(scores, labels, weights))


def entropy(cells, weights):
    pairs = list(zip(cells, weights, strict=True))
    shares = [sum(w for c, w in pairs if c == x) / sum(weights) for x in set(cells)]
    return -sum(p * np.log(p) for p in shares)


def v_measure(groups, classes, weights=None):
    """Harmonic mean of homogeneity and completeness, from conditional entropies."""
    groups, classes = list(groups), list(classes)
    w = np.ones(len(groups)) if weights is None else weights
    joint = entropy(list(zip(groups, classes, strict=True)), w)
    of_class, of_group = entropy(classes, w), entropy(groups, w)
    homogeneity = 1 - (joint - of_group) / of_class if of_class > 1e-12 else 1.0
    completeness = 1 - (joint - of_class) / of_group if of_group > 1e-12 else 1.0
    whole = homogeneity + completeness
    return 2 * homogeneity * completeness / whole if whole > 1e-9 else 0.0
