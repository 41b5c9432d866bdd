// The largest elements of rows, and where a class stands among them. A block works on a row: it
// finds the k-th largest element by a radix search, collects what is not smaller, and sorts that.
#include "muster/ops/gpu.cuh"

// An unsigned number that is larger for larger elements; 0 for NaN, which is below everything.
template <int size>
struct KeyBits {
  using type = uint32;
};
template <>
struct KeyBits<8> {
  using type = uint64;
};
template <typename T>
using Key = typename KeyBits<sizeof(T)>::type;

template <typename T>
__device__ __forceinline__ Key<T> KeyOf(T element) {
  using K = Key<T>;
  using C = Compute<T>;
  C value = C(element);
  constexpr K kTop = K(1) << (8 * sizeof(C) - 1);
  if constexpr (kIsFloat<C>) {
    if (value != value) return 0;
    if (value == C(0)) value = C(0);  // not -0
    const K bits = BitCast<K>(value);
    return bits & kTop ? ~bits : bits | kTop;
  } else if constexpr (T(-1) < T(0)) {
    return (K(value) ^ kTop) & (kTop | (kTop - 1));
  } else {
    return K(value);
  }
}

// Sorts `count` elements with all threads of the block: a bitonic network whose first step of each
// merge compares mirrored places, so that all compare in one direction and places from `count` on
// need not exist. less(i, j): the element at i belongs before that at j.
template <typename Less, typename Swap>
__device__ void SortWithBlock(int64 count, Less less, Swap swap) {
  const auto order = [&](int64 low, int64 high) {
    if (high < count && less(high, low)) swap(low, high);
  };
  for (int64 size = 2; size / 2 < count; size *= 2) {
    const int64 pairs = (count + size - 1) / size * (size / 2);
    for (int64 t = threadIdx.x; t < pairs; t += blockDim.x) {
      const int64 begin = t / (size / 2) * size, at = t % (size / 2);
      order(begin + at, begin + size - 1 - at);
    }
    __syncthreads();
    for (int64 half = size / 4; half > 0; half /= 2) {
      for (int64 t = threadIdx.x; t < pairs; t += blockDim.x) {
        const int64 low = t / half * (2 * half) + t % half;
        order(low, low + half);
      }
      __syncthreads();
    }
  }
}

constexpr int kInShared = 1024;  // elements that are sorted in shared memory
constexpr int kDigits = 256;
constexpr int kMostTopKThreads = 512;

// What the elements of a row have to be: those whose bits under `mask` are larger than `prefix`,
// and the first `num_equal` of those where they are equal.
template <typename K>
struct Selection {
  K mask, prefix;
  int64 num_equal;
  bool all_equal;  // there are no more of them
};

// Requires: k in [1, width), at least kDigits threads.
template <typename T>
__device__ Selection<Key<T>> FindKth(const T* row, int64 width, int64 k) {
  using K = Key<T>;
  __shared__ unsigned long long counts[kDigits];  // of this digit and larger ones
  __shared__ int digit;
  Selection<K> found = {0, 0, k, false};
  const int own = threadIdx.x;
  for (int shift = 8 * sizeof(K) - 8; shift >= 0 && !found.all_equal; shift -= 8) {
    if (own < kDigits) counts[own] = 0;
    __syncthreads();
    for (int64 i = own; i < width; i += blockDim.x) {
      const K key = KeyOf(row[i]);
      if ((key & found.mask) == found.prefix) atomicAdd(&counts[int(key >> shift) & 255], 1ull);
    }
    __syncthreads();
    for (int offset = 1; offset < kDigits; offset *= 2) {
      const unsigned long long more = own + offset < kDigits ? counts[own + offset] : 0;
      __syncthreads();
      if (own < kDigits) counts[own] += more;
      __syncthreads();
    }
    const auto above = [&](int at) { return at == kDigits - 1 ? 0 : int64(counts[at + 1]); };
    if (own < kDigits && int64(counts[own]) >= found.num_equal && above(own) < found.num_equal)
      digit = own;
    __syncthreads();
    const int64 larger = above(digit);
    found.all_equal = int64(counts[digit]) == found.num_equal;
    found.num_equal -= larger;
    found.mask |= K(255) << shift;
    found.prefix |= K(digit) << shift;
    __syncthreads();
  }
  return found;
}

// Calls emit(place, i) for the k elements of the selection, in any order.
template <typename T, typename Emit>
__device__ void Collect(const T* row, int64 width, const Selection<Key<T>>& selection, Emit emit) {
  using K = Key<T>;
  __shared__ unsigned long long taken;
  __shared__ unsigned long long before[kMostTopKThreads];
  const int own = threadIdx.x;
  if (own == 0) taken = 0;
  __syncthreads();
  for (int64 i = own; i < width; i += blockDim.x) {
    const K key = KeyOf(row[i]) & selection.mask;
    if (key > selection.prefix || (key == selection.prefix && selection.all_equal))
      emit(int64(atomicAdd(&taken, 1ull)), i);
  }
  if (selection.all_equal) return;
  // Of the equal ones the first: each thread has a run of the row and knows how many are before it.
  const int64 begin = width * own / blockDim.x, end = width * (own + 1) / blockDim.x;
  int64 equal = 0;
  for (int64 i = begin; i < end; ++i) equal += KeyOf(row[i]) == selection.prefix;
  before[own] = equal;
  __syncthreads();
  for (int offset = 1; offset < int(blockDim.x); offset *= 2) {
    const unsigned long long more = own >= offset ? before[own - offset] : 0;
    __syncthreads();
    before[own] += more;
    __syncthreads();
  }
  int64 place = int64(before[own]) - equal;
  for (int64 i = begin; i < end && place < selection.num_equal; ++i) {
    if (KeyOf(row[i]) == selection.prefix) emit(int64(taken) + place++, i);
  }
}

template <typename T, typename Index>
__global__ void TopK(const T* x, T* values, Index* indices, int64 rows, int64 width, int64 k) {
  using K = Key<T>;
  __shared__ K keys[kInShared];
  __shared__ int64 places[kInShared];
  for (int64 r = blockIdx.x; r < rows; r += gridDim.x) {
    const T* const row = x + r * width;
    T* const to_values = values + r * k;
    Index* const to_indices = indices + r * k;
    const auto to_shared = [&](int64 at, int64 i) {
      keys[at] = KeyOf(row[i]);
      places[at] = i;
    };
    const auto to_output = [&](int64 at, int64 i) {
      to_values[at] = row[i];
      to_indices[at] = Index(i);
    };
    const bool sorts_all = width <= kInShared;
    const bool in_shared = sorts_all || k <= kInShared;
    if (sorts_all) {
      for (int64 i = threadIdx.x; i < width; i += blockDim.x) to_shared(i, i);
    } else if (k == width) {
      for (int64 i = threadIdx.x; i < width; i += blockDim.x) to_output(i, i);
    } else {
      const Selection<K> selection = FindKth(row, width, k);
      if (in_shared) {
        Collect(row, width, selection, to_shared);
      } else {
        Collect(row, width, selection, to_output);
      }
    }
    __syncthreads();
    if (in_shared) {
      SortWithBlock(
          sorts_all ? width : k,
          [&](int64 i, int64 j) {
            return keys[i] > keys[j] || (keys[i] == keys[j] && places[i] < places[j]);
          },
          [&](int64 i, int64 j) {
            const K key = keys[i];
            keys[i] = keys[j];
            keys[j] = key;
            const int64 place = places[i];
            places[i] = places[j];
            places[j] = place;
          });
      for (int64 i = threadIdx.x; i < k; i += blockDim.x) to_output(i, places[i]);
    } else {
      SortWithBlock(
          k,
          [&](int64 i, int64 j) {
            const K a = KeyOf(to_values[i]), b = KeyOf(to_values[j]);
            return a > b || (a == b && to_indices[i] < to_indices[j]);
          },
          [&](int64 i, int64 j) {
            const T value = to_values[i];
            to_values[i] = to_values[j];
            to_values[j] = value;
            const Index index = to_indices[i];
            to_indices[i] = to_indices[j];
            to_indices[j] = index;
          });
    }
    __syncthreads();
  }
}
