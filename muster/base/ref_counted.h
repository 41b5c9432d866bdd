// Intrusive reference counts, for objects whose last asynchronous user decides when they die.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace muster {

class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;

  void Ref() const { count_.fetch_add(1, std::memory_order_relaxed); }
  void Unref() const {
    // Alone: no other thread can take a reference now, so the locked decrement is not needed.
    if (count_.load(std::memory_order_acquire) == 1 ||
        count_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      const_cast<RefCounted*>(this)->Destroy();
    }
  }
  bool RefIsOne() const { return count_.load(std::memory_order_acquire) == 1; }

 protected:
  virtual ~RefCounted() = default;
  virtual void Destroy() { delete this; }

 private:
  mutable std::atomic<int32_t> count_{1};
};

// A smart pointer to a RefCounted. Constructing from a raw pointer adopts the reference that `new`
// made.
template <typename T>
class RefPtr {
 public:
  RefPtr() = default;
  RefPtr(std::nullptr_t) {}  // NOLINT(google-explicit-constructor)
  static RefPtr Adopt(T* pointer) {
    RefPtr result;
    result.pointer_ = pointer;
    return result;
  }
  static RefPtr Share(T* pointer) {
    if (pointer != nullptr) pointer->Ref();
    return Adopt(pointer);
  }
  RefPtr(const RefPtr& other) : pointer_(other.pointer_) {
    if (pointer_ != nullptr) pointer_->Ref();
  }
  RefPtr(RefPtr&& other) noexcept : pointer_(std::exchange(other.pointer_, nullptr)) {}
  template <typename U>
  RefPtr(const RefPtr<U>& other) : pointer_(other.get()) {  // NOLINT(google-explicit-constructor)
    if (pointer_ != nullptr) pointer_->Ref();
  }
  RefPtr& operator=(RefPtr other) noexcept {
    std::swap(pointer_, other.pointer_);
    return *this;
  }
  ~RefPtr() {
    if (pointer_ != nullptr) pointer_->Unref();
  }
  T* get() const { return pointer_; }
  T& operator*() const { return *pointer_; }
  T* operator->() const { return pointer_; }
  explicit operator bool() const { return pointer_ != nullptr; }
  void reset() { *this = RefPtr(); }

 private:
  T* pointer_ = nullptr;
};

template <typename T, typename... Args>
RefPtr<T> MakeRef(Args&&... args) {
  return RefPtr<T>::Adopt(new T(std::forward<Args>(args)...));
}

}  // namespace muster
