#include "bindings.h"

#include "muster/graph/gradients.h"

namespace muster {
namespace {

constexpr absl::string_view kPythonErrorPayload = "muster/python-exception";

nb::object* error_maker = nullptr;  // muster.errors._make(code, message, while_running, kind)

thread_local nb::object kept_exception;

}  // namespace

absl::Status CallPython(const std::function<void()>& call) {
  nb::gil_scoped_acquire gil;
  try {
    call();
    return absl::OkStatus();
  } catch (nb::python_error& error) {
    kept_exception = nb::borrow(error.value());
    absl::Status status = absl::UnknownError(error.what());
    status.SetPayload(std::string(kPythonErrorPayload), absl::Cord("1"));
    return status;
  }
}

void RaiseKeptPythonError(const absl::Status& status) {
  if (!status.GetPayload(kPythonErrorPayload).has_value() || !kept_exception.is_valid()) return;
  nb::object exception = std::move(kept_exception);
  kept_exception = nb::object();
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

void BindErrors(nb::module_& m) {
  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void*) {
        try {
          std::rethrow_exception(thrown);
        } catch (const StatusError& error) {
          try {
            RaiseKeptPythonError(error.status);
            const std::string message(error.status.message());
            if (error_maker == nullptr) {
              PyErr_SetString(PyExc_RuntimeError, message.c_str());
              return;
            }
            nb::object exception = (*error_maker)(
                static_cast<int>(error.status.code()),
                nb::steal<nb::str>(PyUnicode_DecodeUTF8(
                    message.data(), static_cast<Py_ssize_t>(message.size()), "replace")),
                error.while_running, ErrorKind(error.status));
            PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
          } catch (nb::python_error& inner) {
            inner.restore();
          }
        }
      },
      nullptr);
  m.def(
      "set_error_maker", [](nb::object maker) { error_maker = new nb::object(std::move(maker)); },
      "The function (code, message, while_running, kind) -> exception that statuses are raised "
      "through.");
}

}  // namespace muster
