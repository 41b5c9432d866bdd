// oneDNN's functions, found in its library when the first convolution asks for them. Most tasks of
// a cluster never run one (parameter servers, models of dense layers), and what linking would cost
// each of them was measured (oneDNN 2.6, medians of five): an idle `muster serve` has 25.4 MB
// resident instead of 22.7, of which 2.8 instead of 2.4 are its own, and starts with 26 ms of CPU
// time instead of 22. A process that lacks the library still runs everything else.
#pragma once

#include <dnnl.h>

namespace muster {

struct OneDnn {
  decltype(&dnnl_dilated_convolution_backward_data_desc_init) convolution_backward_data_desc_init;
  decltype(&dnnl_dilated_convolution_backward_weights_desc_init)
      convolution_backward_weights_desc_init;
  decltype(&dnnl_dilated_convolution_forward_desc_init) convolution_forward_desc_init;
  decltype(&dnnl_engine_create) engine_create;
  decltype(&dnnl_memory_create) memory_create;
  decltype(&dnnl_memory_desc_equal) memory_desc_equal;
  decltype(&dnnl_memory_desc_get_size) memory_desc_get_size;
  decltype(&dnnl_memory_desc_init_by_strides) memory_desc_init_by_strides;
  decltype(&dnnl_memory_desc_init_by_tag) memory_desc_init_by_tag;
  decltype(&dnnl_memory_destroy) memory_destroy;
  decltype(&dnnl_primitive_attr_create) primitive_attr_create;
  decltype(&dnnl_primitive_attr_destroy) primitive_attr_destroy;
  decltype(&dnnl_primitive_attr_set_scratchpad_mode) primitive_attr_set_scratchpad_mode;
  decltype(&dnnl_primitive_create) primitive_create;
  decltype(&dnnl_primitive_desc_create) primitive_desc_create;
  decltype(&dnnl_primitive_desc_destroy) primitive_desc_destroy;
  decltype(&dnnl_primitive_desc_query_md) primitive_desc_query_md;
  decltype(&dnnl_primitive_destroy) primitive_destroy;
  decltype(&dnnl_primitive_execute) primitive_execute;
  decltype(&dnnl_reorder_primitive_desc_create) reorder_primitive_desc_create;
  decltype(&dnnl_stream_create) stream_create;
  decltype(&dnnl_stream_destroy) stream_destroy;
  decltype(&dnnl_stream_wait) stream_wait;
  // Of the OpenMP runtime below it, for the calling thread; null where it runs on something else.
  void (*set_num_threads)(int threads);
};

// Null, and logged once, where the library is not found or lacks a function.
const OneDnn* LoadOneDnn();

}  // namespace muster
