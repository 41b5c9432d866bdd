#include <cstring>

#include "bindings.h"
#include <nanobind/ndarray.h>

#include "muster/tensor/clone.h"

namespace muster {
namespace {

// Buffer protocol formats would not know half or complex; numpy's own type numbers do.
const char* NumpyName(DType dtype) {
  switch (dtype) {
    case DType::kFloat:
      return "float32";
    case DType::kDouble:
      return "float64";
    case DType::kHalf:
      return "float16";
    case DType::kInt8:
    case DType::kQint8:
      return "int8";
    case DType::kInt16:
    case DType::kQint16:
      return "int16";
    case DType::kInt32:
    case DType::kQint32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kUint8:
    case DType::kQuint8:
      return "uint8";
    case DType::kUint16:
    case DType::kQuint16:
      return "uint16";
    case DType::kUint32:
      return "uint32";
    case DType::kUint64:
      return "uint64";
    case DType::kBool:
      return "bool";
    case DType::kComplex64:
      return "complex64";
    case DType::kComplex128:
      return "complex128";
    case DType::kBfloat16:
      return "uint16";  // viewed as bfloat16 by the package where ml_dtypes is installed
    default:
      return nullptr;
  }
}

nb::dlpack::dtype DlpackType(DType dtype) {
  const auto make = [&](nb::dlpack::dtype_code code) {
    return nb::dlpack::dtype{static_cast<uint8_t>(code), static_cast<uint8_t>(DTypeSize(dtype) * 8),
                             1};
  };
  using enum nb::dlpack::dtype_code;
  switch (dtype) {
    case DType::kFloat:
    case DType::kDouble:
    case DType::kHalf:
      return make(Float);
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kQint8:
    case DType::kQint16:
    case DType::kQint32:
      return make(Int);
    case DType::kBool:
      return make(Bool);
    case DType::kComplex64:
    case DType::kComplex128:
      return make(Complex);
    default:
      return make(UInt);
  }
}

// Keeps a Py_buffer (and through it the array) alive for as long as the tensor's memory is in use.
struct HeldBuffer {
  Py_buffer view;
};

Tensor StringTensor(nb::handle array, Shape shape) {
  Tensor tensor(DType::kString, std::move(shape));
  nb::object flat = array.attr("ravel")().attr("tolist")();
  auto* out = tensor.data<std::string>();
  int64_t i = 0;
  for (nb::handle element : flat) {
    if (PyBytes_Check(element.ptr())) {
      out[i++].assign(PyBytes_AS_STRING(element.ptr()),
                      static_cast<size_t>(PyBytes_GET_SIZE(element.ptr())));
    } else if (PyUnicode_Check(element.ptr())) {
      Py_ssize_t size;
      const char* text = PyUnicode_AsUTF8AndSize(element.ptr(), &size);
      if (text == nullptr) throw nb::python_error();
      out[i++].assign(text, static_cast<size_t>(size));
    } else {
      throw nb::type_error("a string tensor takes bytes or text only");
    }
  }
  return tensor;
}

Shape ShapeOfBuffer(const Py_buffer& view) {
  Dims dims(view.shape, view.shape + view.ndim);
  return BuildValue(Shape::Make(dims));
}

}  // namespace

Tensor TensorFromNumpy(nb::handle array, DType dtype) {
  if (dtype == DType::kString) {
    Dims dims;
    for (nb::handle size : array.attr("shape")) dims.push_back(nb::cast<int64_t>(size));
    return StringTensor(array, BuildValue(Shape::Make(dims)));
  }
  if (!IsPlainData(dtype))
    throw nb::type_error("tensors of this type cannot be made from an array");
  auto held = std::make_unique<HeldBuffer>();
  if (PyObject_GetBuffer(array.ptr(), &held->view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    nb::object copy = nb::module_::import_("numpy").attr("ascontiguousarray")(array);
    if (PyObject_GetBuffer(copy.ptr(), &held->view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0)
      throw nb::python_error();
  }
  const Py_buffer& view = held->view;
  Shape shape = ShapeOfBuffer(view);
  if (static_cast<size_t>(view.itemsize) != DTypeSize(dtype)) {
    PyBuffer_Release(&held->view);
    throw nb::type_error("the array's elements do not have the size of the wanted type");
  }
  const auto bytes = static_cast<size_t>(view.len);
  if (bytes <= 256 || reinterpret_cast<uintptr_t>(view.buf) % DTypeSize(dtype) != 0) {
    // Small: copying is cheaper than holding on. Misaligned: kernels could not read it.
    Tensor tensor(dtype, std::move(shape));
    if (bytes > 0) std::memcpy(tensor.raw(), view.buf, bytes);
    PyBuffer_Release(&held->view);
    return tensor;
  }
  HeldBuffer* owned = held.release();
  Buffer buffer = Buffer::AdoptExternal(owned->view.buf, bytes, [owned] {
    HeldGil gil;
    PyBuffer_Release(&owned->view);
    std::unique_ptr<HeldBuffer>(owned).reset();
  });
  return BuildValue(Tensor::FromBuffer(dtype, std::move(shape), std::move(buffer)));
}

nb::object TensorToNumpy(Tensor tensor) {
  const int64_t count = tensor.num_elements();
  if (tensor.dtype() == DType::kString) {
    const auto text = [](const std::string& s) {
      return nb::steal<nb::object>(
          PyBytes_FromStringAndSize(s.data(), static_cast<Py_ssize_t>(s.size())));
    };
    if (tensor.rank() == 0) return text(tensor.data<std::string>()[0]);
    nb::module_ numpy = nb::module_::import_("numpy");
    nb::list shape;
    for (int64_t size : tensor.shape().dims()) shape.append(size);
    nb::object array = numpy.attr("empty")(nb::tuple(shape), nb::arg("dtype") = "object");
    nb::object flat = array.attr("reshape")(-1);
    for (int64_t i = 0; i < count; ++i) flat[nb::int_(i)] = text(tensor.data<std::string>()[i]);
    return array;
  }
  if (NumpyName(tensor.dtype()) == nullptr) {
    throw nb::type_error(
        absl::StrCat("a tensor of type ", DTypeName(tensor.dtype()), " cannot become an array")
            .c_str());
  }
  // Memory that a variable or another step may still read must not be handed to code that can write
  // to it.
  if (!tensor.exclusive()) tensor = RunValue(TryClone(tensor));
  auto* owner = new Tensor(std::move(tensor));
  nb::capsule capsule(owner, [](void* p) noexcept { delete static_cast<Tensor*>(p); });
  std::vector<size_t> shape(owner->shape().dims().begin(), owner->shape().dims().end());
  nb::ndarray<nb::numpy> view(owner->raw(), shape.size(), shape.data(), capsule, nullptr,
                              DlpackType(owner->dtype()));
  nb::object array = nb::cast(view);
  // The buffer protocol says "long long", a type of its own to numpy: not np.int64 but np.longlong.
  if (owner->dtype() == DType::kInt64 || owner->dtype() == DType::kUint64)
    array = array.attr("view")(NumpyName(owner->dtype()));
  if (owner->rank() == 0) return array[nb::tuple()];
  return array;
}

void BindTensors(nb::module_& m) {
  nb::class_<Tensor>(m, "TensorValue", "An immutable tensor of the runtime.")
      .def_prop_ro("dtype", [](const Tensor& t) { return static_cast<int>(t.dtype()); })
      .def_prop_ro("shape",
                   [](const Tensor& t) {
                     nb::list dims;
                     for (int64_t size : t.shape().dims()) dims.append(size);
                     return dims;
                   })
      .def("numpy", [](const Tensor& t) { return TensorToNumpy(t); })
      .def("__repr__", &Tensor::ToString);
  m.def(
      "tensor",
      [](nb::handle array, int dtype) { return TensorFromNumpy(array, static_cast<DType>(dtype)); },
      "A tensor value from a numpy array whose elements have the wanted type already.");
  m.def("dtype_name", [](int dtype) { return DTypeName(static_cast<DType>(dtype)); });
  m.def("dtype_size", [](int dtype) { return DTypeSize(static_cast<DType>(dtype)); });
  m.def("dtype_from_name",
        [](const std::string& name) { return static_cast<int>(BuildValue(DTypeFromName(name))); });
}

}  // namespace muster
