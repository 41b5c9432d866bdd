"""The sizes of the larger models, and their inputs, which stay on the card."""
import numpy as np


def small_weights(shape, seed):
    return (0.02 * np.random.RandomState(seed).randn(*shape)).astype(np.float32)


class ResNet(object):
    """ResNet-50 with momentum."""
    batch, classes, rate = 128, 1000, 0.01
    groups = ((3, 64), (4, 128), (6, 256), (3, 512))  # blocks and filters
    last_scale = 0.2  # of the last normalization of each block

    @staticmethod
    def inputs():
        random = np.random.RandomState(0)
        return (random.rand(ResNet.batch, 224, 224, 3).astype(np.float32) - 0.5,
                random.randint(0, ResNet.classes, ResNet.batch).astype(np.int64))


class Bert(object):
    """BERT-base that predicts masked words, with AdamW."""
    batch, length, words, width, heads, layers = 32, 128, 30522, 768, 12, 12
    masked = 20  # of each sentence
    rate, decay = 1e-4, 0.01

    @staticmethod
    def inputs():
        """Words, which of all of them are masked, and what they are."""
        random = np.random.RandomState(0)
        count = Bert.batch * Bert.masked
        return (random.randint(0, Bert.words, Bert.batch * Bert.length).astype(np.int64),
                (np.repeat(np.arange(Bert.batch), Bert.masked) * Bert.length + random.randint(0, Bert.length, count)).astype(np.int64),
                random.randint(0, Bert.words, count).astype(np.int64))


class Lstm(object):
    """The medium language model of Penn Treebank's tutorial, with SGD and clipped gradients."""
    batch, steps, words, width, layers, rate, clip = 20, 35, 10000, 650, 2, 1.0, 5.0

    @staticmethod
    def inputs():
        random = np.random.RandomState(0)
        return tuple(random.randint(0, Lstm.words, (Lstm.batch, Lstm.steps)).astype(np.int64) for _ in range(2))
