"""Flat trees answer as scikit-learn's do."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor, RandomForestRegressor

from llamea_gpu.models.forest import Ensemble, Forest


def data(rows: int = 200, columns: int = 7, seed: int = 0):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 6, size=(rows, columns)).astype(np.float32)
    y = np.stack([x[:, 0] * x[:, 1] + rng.normal(size=rows), x.sum(axis=1)], axis=1)
    return x, y


def trees(model) -> Ensemble:
    return Ensemble.of_trees([tree.tree_ for tree in model.estimators_])


@pytest.mark.parametrize("kind", [ExtraTreesRegressor, RandomForestRegressor])
@pytest.mark.parametrize("depth", [None, 1, 7])
def test_a_walk_gives_what_scikit_learn_predicts(kind, depth) -> None:
    x, y = data()
    unseen, _ = data(seed=1)
    model = kind(13, max_depth=depth, random_state=0).fit(x, y)
    (outputs,) = Forest([trees(model)]).many(unseen)
    np.testing.assert_allclose(outputs, model.predict(unseen), rtol=0, atol=1e-9)


def test_a_classifier_gives_its_probabilities() -> None:
    x, y = data()
    labels = (y[:, 0] > 5).astype(int) + (y[:, 1] > 20)
    model = ExtraTreesClassifier(9, min_samples_leaf=4, random_state=0).fit(x, labels)
    (outputs,) = Forest([trees(model)]).many(x)
    np.testing.assert_allclose(outputs, model.predict_proba(x), rtol=0, atol=1e-9)


def test_ensembles_that_are_asked_together_answer_as_alone_and_a_row_as_among_others() -> None:
    x, y = data()
    first = trees(ExtraTreesRegressor(5, random_state=0).fit(x, y))
    second = trees(ExtraTreesRegressor(3, max_depth=2, random_state=1).fit(x, y[:, 0]))
    together = Forest([first, second])
    many = together.many(x)
    for alone, output in zip((first, second), many, strict=True):
        np.testing.assert_array_equal(Forest([alone]).many(x)[0], output)
    for row in range(20):
        for one, output in zip(together.one(x[row]), many, strict=True):
            np.testing.assert_array_equal(one, output[row])
    assert [output.shape for output in together.many(x[:0])] == [(0, 2), (0, 1)]


def test_a_single_leaf_is_a_tree(tmp_path) -> None:
    x, _ = data()
    model = ExtraTreesRegressor(2, random_state=0).fit(x, np.full(len(x), 3.0))
    assert Forest([trees(model)]).one(x[0])[0].tolist() == [3.0]


def test_arrays_survive_a_file(tmp_path) -> None:
    x, y = data()
    grown = trees(ExtraTreesRegressor(4, random_state=0).fit(x, y))
    np.savez(tmp_path / "a.npz", **grown.arrays())
    with np.load(tmp_path / "a.npz", allow_pickle=False) as stored:
        again = Ensemble.of_arrays(stored)
    np.testing.assert_array_equal(Forest([again]).many(x)[0], Forest([grown]).many(x)[0])
