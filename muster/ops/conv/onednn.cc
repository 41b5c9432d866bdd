#include "muster/ops/conv/onednn.h"

#include <dlfcn.h>
#include <dnnl_version.h>

#include "muster/base/log.h"

namespace muster {
namespace {

#define MUSTER_TEXT_OF(x) #x
#define MUSTER_TEXT(x) MUSTER_TEXT_OF(x)
// The interface that the header describes: another major version has another one.
constexpr char kLibrary[] = "libdnnl.so." MUSTER_TEXT(DNNL_VERSION_MAJOR);
#undef MUSTER_TEXT
#undef MUSTER_TEXT_OF

template <typename F>
bool Find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

bool FindAll(void* library, OneDnn& found) {
  Find(library, "omp_set_num_threads", found.set_num_threads);
  return Find(library, "dnnl_dilated_convolution_backward_data_desc_init",
              found.convolution_backward_data_desc_init) &&
         Find(library, "dnnl_dilated_convolution_backward_weights_desc_init",
              found.convolution_backward_weights_desc_init) &&
         Find(library, "dnnl_dilated_convolution_forward_desc_init",
              found.convolution_forward_desc_init) &&
         Find(library, "dnnl_engine_create", found.engine_create) &&
         Find(library, "dnnl_memory_create", found.memory_create) &&
         Find(library, "dnnl_memory_desc_equal", found.memory_desc_equal) &&
         Find(library, "dnnl_memory_desc_get_size", found.memory_desc_get_size) &&
         Find(library, "dnnl_memory_desc_init_by_strides", found.memory_desc_init_by_strides) &&
         Find(library, "dnnl_memory_desc_init_by_tag", found.memory_desc_init_by_tag) &&
         Find(library, "dnnl_memory_destroy", found.memory_destroy) &&
         Find(library, "dnnl_primitive_attr_create", found.primitive_attr_create) &&
         Find(library, "dnnl_primitive_attr_destroy", found.primitive_attr_destroy) &&
         Find(library, "dnnl_primitive_attr_set_scratchpad_mode",
              found.primitive_attr_set_scratchpad_mode) &&
         Find(library, "dnnl_primitive_create", found.primitive_create) &&
         Find(library, "dnnl_primitive_desc_create", found.primitive_desc_create) &&
         Find(library, "dnnl_primitive_desc_destroy", found.primitive_desc_destroy) &&
         Find(library, "dnnl_primitive_desc_query_md", found.primitive_desc_query_md) &&
         Find(library, "dnnl_primitive_destroy", found.primitive_destroy) &&
         Find(library, "dnnl_primitive_execute", found.primitive_execute) &&
         Find(library, "dnnl_reorder_primitive_desc_create", found.reorder_primitive_desc_create) &&
         Find(library, "dnnl_stream_create", found.stream_create) &&
         Find(library, "dnnl_stream_destroy", found.stream_destroy) &&
         Find(library, "dnnl_stream_wait", found.stream_wait);
}

}  // namespace

const OneDnn* LoadOneDnn() {
  static OneDnn found{};
  static const bool loaded = [] {
    // Never closed: compiled convolutions may outlive whatever else ends with the process.
    void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr && FindAll(library, found)) return true;
    const char* const why = library == nullptr ? dlerror() : "it lacks a function";
    LOG(WARNING) << "convolutions run slowly, without oneDNN: " << kLibrary << ": " << why;
    return false;
  }();
  return loaded ? &found : nullptr;
}

}  // namespace muster
