"""Shapes: drawn from a seed, balanced, and out of reach for a classifier without an eye for form."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from vtl_data import DataLoader, Shapes, ToFloat

COUNT = 4000


@pytest.fixture(scope="module")
def train():
    return Shapes(COUNT)


@pytest.fixture(scope="module")
def test():
    return Shapes(1000, train=False)


def accuracy_of_ridge(train, test, features, strength):
    """Return the test accuracy of a linear classifier fitted to one-hot labels by ridge regression."""
    x, t = features(train.images), features(test.images)
    mean = x.mean(axis=0)
    x, t = x - mean, t - mean
    targets = np.eye(10)[train.labels] - 0.1
    weight = np.linalg.solve(x.T @ x + strength * len(x) * np.eye(x.shape[1]), x.T @ targets)
    return float(np.mean(np.argmax(t @ weight, axis=1) == test.labels))


def pixels(images):
    return images.reshape(len(images), -1) / 255.0


def color_histogram(images):
    """Return the shares of 8 levels of each channel and of 64 colours, and their roots."""
    level = (images // 32).astype(np.int64).reshape(len(images), 3, -1) + 8 * np.arange(3)[None, :, None]
    coarse = (images // 64).astype(np.int64).reshape(len(images), 3, -1)
    color = 24 + coarse[:, 0] * 16 + coarse[:, 1] * 4 + coarse[:, 2]
    both = np.concatenate([level.reshape(len(images), -1), color], axis=1)
    shares = np.stack([np.bincount(row, minlength=88) for row in both]) / 1024
    return np.concatenate([shares, np.sqrt(shares)], axis=1)


def test_linear_classifier_on_pixels_stays_under_60_percent(train, test):
    """The best of three strengths counts, chosen on the test images: a bound from above."""
    assert 0.12 < max(accuracy_of_ridge(train, test, pixels, strength) for strength in (1e-2, 1e-1, 1.0)) < 0.6


def test_color_histogram_classifier_stays_under_30_percent(train, test):
    assert max(accuracy_of_ridge(train, test, color_histogram, strength) for strength in (1e-6, 1e-4)) < 0.3


def test_nearest_color_histogram_stays_under_30_percent(train, test):
    """A classifier that is not linear does no better on colours."""
    x, t = color_histogram(train.images), color_histogram(test.images)
    nearest = np.argmin((x * x).sum(axis=1) - 2 * t @ x.T, axis=1)

    assert np.mean(train.labels[nearest] == test.labels) < 0.3


def test_images_are_what_api_says(train):
    image, label = train[3]

    assert len(train) == COUNT
    assert (image.shape, image.dtype, label.dtype) == ((3, 32, 32), np.uint8, np.int64)
    assert len(set(train.classes)) == 10
    assert train.images.min() == 0
    assert train.images.max() == 255


def test_every_ten_in_turn_hold_each_class_once(train):
    assert (np.sort(train.labels.reshape(-1, 10), axis=1) == np.arange(10)).all()
    assert not (train.labels[:10] == train.labels[10:20]).all()


def test_same_seed_repeats_and_a_longer_set_begins_with_the_shorter(train):
    again = Shapes(137)

    np.testing.assert_array_equal(again.images, train.images[:137])
    np.testing.assert_array_equal(again.labels, train.labels[:137])


def test_other_seeds_and_the_test_part_share_no_image(train, test):
    sets = [train.images, test.images, Shapes(500, seed=1).images, Shapes(500, train=False, seed=1).images]
    hashes = [hashlib.sha256(image.tobytes()).digest() for images in sets for image in images]

    assert len(set(hashes)) == len(hashes)
    assert not np.array_equal(train.labels[:100], test.labels[:100])


def test_classes_cover_the_same_area(train):
    """Else a count of pixels would tell them apart: the form is what differs from the border's colour."""
    images = train.images.astype(np.float64)
    border = np.concatenate([images[:, :, :2].reshape(COUNT, 3, -1), images[:, :, -2:].reshape(COUNT, 3, -1)], axis=2)
    far = np.abs(images - border.mean(axis=2)[:, :, None, None]).mean(axis=1) > 50
    covered = np.array([far[train.labels == label].mean() for label in range(10)])

    assert covered.max() / covered.min() < 1.15


def test_loader_and_transform_take_shapes():
    images, labels = next(iter(DataLoader(Shapes(20, transform=ToFloat()), batch_size=16, shuffle=True)))

    assert (images.shape, images.dtype, labels.shape) == ((16, 3, 32, 32), np.float32, (16,))


def test_none_is_an_empty_data_set():
    assert len(Shapes(0)) == 0
    assert list(DataLoader(Shapes(0), 4)) == []


@pytest.mark.parametrize("count", [-1, 1.5, True, None])
def test_count_that_cannot_be_is_refused(count):
    with pytest.raises((ValueError, TypeError), match="Shapes: count "):
        Shapes(count)
