"""tf.contrib.learn.preprocessing: words of documents become numbers."""
import pickle
import re

import numpy as np

_TOKENS = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z][a-z]+(?=[A-Z])|[\'\w\-]+", re.UNICODE)


def tokenizer(iterator):
    """Splits each text into its words."""
    for value in iterator:
        yield _TOKENS.findall(value)


class CategoricalVocabulary(object):
    """Words and their numbers; 0 is the unknown one. Frozen, it learns no new words."""

    def __init__(self, unknown_token="<UNK>", support_reverse=True):
        self._unknown_token, self._support_reverse = unknown_token, support_reverse
        self._mapping, self._reverse_mapping, self._freq = {unknown_token: 0}, [unknown_token], {}
        self._frozen = False

    def __len__(self):
        return len(self._mapping)

    def freeze(self, freeze=True):
        self._frozen = freeze

    def get(self, category):
        if category not in self._mapping:
            if self._frozen:
                return 0
            self._mapping[category] = len(self._mapping)
            self._reverse_mapping.append(category)
        return self._mapping[category]

    def add(self, category, count=1):
        if self.get(category) > 0:
            self._freq[category] = self._freq.get(category, 0) + count

    def trim(self, min_frequency, max_frequency=-1):
        """Keeps words that occurred more than min_frequency times (and less than max_frequency), most frequent
        first."""
        kept = [(word, count) for word, count in sorted(sorted(self._freq.items()), key=lambda item: -item[1])
                if count > min_frequency and (max_frequency <= 0 or count < max_frequency)]
        self._freq = dict(kept)
        self._reverse_mapping = [self._unknown_token] + [word for word, _ in kept]
        self._mapping = {word: number for number, word in enumerate(self._reverse_mapping)}

    def reverse(self, class_id):
        if not self._support_reverse:
            raise ValueError("This vocabulary wasn't initialized with support_reverse to support reverse() function.")
        return self._reverse_mapping[class_id]


class VocabularyProcessor(object):
    """Documents to rows of word numbers, all of one length, padded with 0."""

    def __init__(self, max_document_length, min_frequency=0, vocabulary=None, tokenizer_fn=None):
        self.max_document_length, self.min_frequency = max_document_length, min_frequency
        self.vocabulary_ = CategoricalVocabulary() if vocabulary is None else vocabulary
        self._tokenizer = tokenizer_fn or tokenizer

    def fit(self, raw_documents, unused_y=None):
        for tokens in self._tokenizer(raw_documents):
            for token in tokens:
                self.vocabulary_.add(token)
        if self.min_frequency > 0:
            self.vocabulary_.trim(self.min_frequency)
        self.vocabulary_.freeze()
        return self

    def fit_transform(self, raw_documents, unused_y=None):
        self.fit(raw_documents)
        return self.transform(raw_documents)

    def transform(self, raw_documents):
        for tokens in self._tokenizer(raw_documents):
            row = np.zeros(self.max_document_length, np.int64)
            for i, token in enumerate(tokens[:self.max_document_length]):
                row[i] = self.vocabulary_.get(token)
            yield row

    def reverse(self, documents):
        for row in documents:
            yield " ".join(self.vocabulary_.reverse(number) for number in row)

    def save(self, filename):
        with open(filename, "wb") as file:
            file.write(pickle.dumps(self))

    @classmethod
    def restore(cls, filename):
        with open(filename, "rb") as file:
            return pickle.loads(file.read())
