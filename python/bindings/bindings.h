// What the binding files share: status to exception, tensors to numpy, and the one rule for calling
// back into Python.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "muster/base/status.h"
#include "muster/graph/attr_value.h"
#include "muster/graph/graph.h"
#include "muster/tensor/tensor.h"

namespace nb = nanobind;

namespace muster {

// Around waits and work: other Python threads run meanwhile. When the program ends, threads other
// than its main one block here for ever: Python would end them by unwinding the stack, which C++
// frames do not survive.
class ReleasedGil {
 public:
  ReleasedGil() : state_(PyEval_SaveThread()) {}
  ~ReleasedGil() {
    EnterPython();
    PyEval_RestoreThread(state_);
    LeavePython();
  }
  ReleasedGil(const ReleasedGil&) = delete;
  ReleasedGil& operator=(const ReleasedGil&) = delete;
  // Around taking the GIL, or all that is done while holding it: the end of the program waits for
  // these.
  static void EnterPython();
  static void LeavePython();

 private:
  PyThreadState* const state_;
};
// Around calls into Python from any thread.
class HeldGil {
 public:
  HeldGil() {
    ReleasedGil::EnterPython();
    state_ = PyGILState_Ensure();
  }
  ~HeldGil() {
    PyGILState_Release(state_);
    ReleasedGil::LeavePython();
  }
  HeldGil(const HeldGil&) = delete;
  HeldGil& operator=(const HeldGil&) = delete;

 private:
  PyGILState_STATE state_;
};

// Thrown inside the bindings only. `while_running` errors become tf.errors.OpError, others
// ValueError and its kin.
struct StatusError {
  absl::Status status;
  bool while_running;
};

inline void ThrowIfBuildError(const absl::Status& status) {
  if (!status.ok()) throw StatusError{status, false};
}
inline void ThrowIfRunError(const absl::Status& status) {
  if (!status.ok()) throw StatusError{status, true};
}
template <typename T>
T BuildValue(absl::StatusOr<T> value) {
  ThrowIfBuildError(value.status());
  return *std::move(value);
}
template <typename T>
T RunValue(absl::StatusOr<T> value) {
  ThrowIfRunError(value.status());
  return *std::move(value);
}

// The trampoline rule: C++ that calls Python takes the GIL here; a Python exception travels as a
// status that keeps it, to be raised again at the border, on whatever thread that is.
absl::Status CallPython(const std::function<void()>& call);
// A Python object that C++ may release on any thread, with or without the GIL.
std::shared_ptr<nb::object> HoldPython(nb::object object);
// Raises the kept Python exception if `status` carries one; otherwise returns.
void RaiseKeptPythonError(const absl::Status& status);
// A status that keeps `exception`; its code is that of a tf.errors class, Unknown for others.
// Requires: the GIL is held.
absl::Status KeepException(nb::handle exception);
// What raising the status would raise: the kept exception, or a new one. Requires: as above.
nb::object ExceptionFor(const absl::Status& status, bool while_running = true);
// Ctrl-C while a call waits: the handler runs here if this is the main thread, and what it raises
// is the status.
absl::Status RunSignalHandlers();

// A tensor over the array's memory where that is safe (contiguous, aligned), a copy otherwise.
// Object arrays and numpy strings become string tensors.
Tensor TensorFromNumpy(nb::handle array, DType dtype);
// A numpy array or scalar. Shares the tensor's memory when it has no other owner; throws a
// StatusError when there is no memory for a copy.
nb::object TensorToNumpy(Tensor tensor);

// A Python value as an attribute of the given kind ("int", "list(type)", ...; "" guesses from the
// value).
AttrValue AttrFromPython(nb::handle value, const std::string& kind);
nb::object AttrToPython(const AttrValue& value);
nb::object ShapeToPython(const PartialShape& shape);  // None, or a list with None for unknown dims
PartialShape ShapeFromPython(nb::handle value);

void BindCheckpoint(nb::module_& m);
void BindErrors(nb::module_& m);
void BindTensors(nb::module_& m);
void BindGraph(nb::module_& m);
void BindProtos(nb::module_& m);
void BindGradients(nb::module_& m);
void BindSession(nb::module_& m);
void BindServer(nb::module_& m);
void BindTrain(nb::module_& m);
void BindAllReduce(nb::module_& m);
void BindShardQueue(nb::module_& m);
void BindSyncReplicas(nb::module_& m);
void BindFunctions(nb::module_& m);
void BindSummaries(nb::module_& m);
void BindSaver(nb::module_& m);
void BindMetaGraph(nb::module_& m);
void BindVariables(nb::module_& m);
void BindOptimizers(nb::module_& m);
void BindMonitored(nb::module_& m);
void BindHooks(nb::module_& m);

}  // namespace muster
