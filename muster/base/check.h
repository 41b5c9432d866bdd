// CHECK guards invariants in all builds, DCHECK hot paths in debug builds. Bad input never triggers
// one.
#pragma once

namespace muster::internal {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);
}

#define CHECK(condition)                             \
  (__builtin_expect(static_cast<bool>(condition), 1) \
       ? (void)0                                     \
       : ::muster::internal::CheckFailed(__FILE__, __LINE__, #condition))
#ifdef MUSTER_DCHECK
#define DCHECK(condition) CHECK(condition)
#else
#define DCHECK(condition) ((void)0)
#endif
