// Addition that is defined for every value.
#pragma once

#include <type_traits>

namespace muster {

// a + b; integers wrap around.
template <typename T>
T AddWrapping(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  } else {
    return a + b;
  }
}

}  // namespace muster
