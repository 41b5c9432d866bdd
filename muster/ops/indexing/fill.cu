#include "muster/ops/indexing/moving.cuh"

// Copies of the element of `size` bytes at `value`, or in `given` where `value` is null.
__global__ void FillBytes(const uint8* value, Word16 given, int size, uint8* to, int64 bytes) {
  uint8 pattern[16];
  memcpy(pattern, &given, 16);
  if (value != nullptr) {
    for (int i = 0; i < 16; ++i) pattern[i] = value[i & (size - 1)];
  }
  Word16 word;
  memcpy(&word, pattern, 16);
  const int64 words = bytes / 16;
  FOR_EACH_ELEMENT(i, words) reinterpret_cast<Word16*>(to)[i] = word;
  FOR_EACH_ELEMENT(j, bytes - words * 16) to[words * 16 + j] = pattern[j];
}
