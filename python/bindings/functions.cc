// Functions of graphs: Python functions that nodes call (tf.py_func), and graphs that become
// functions.
#include "bindings.h"
#include "hooks.h"

#include "muster/graph/proto/function_build_proto.h"
#include "muster/ops/control/py_func.h"

namespace muster {
namespace {

// As TensorFlow maps them: the step fails with the code, the text names the exception.
absl::StatusCode CodeFor(const nb::python_error& error) {
  if (error.matches(PyExc_ValueError) || error.matches(PyExc_TypeError))
    return absl::StatusCode::kInvalidArgument;
  if (error.matches(PyExc_StopIteration)) return absl::StatusCode::kOutOfRange;
  if (error.matches(PyExc_MemoryError)) return absl::StatusCode::kResourceExhausted;
  if (error.matches(PyExc_NotImplementedError)) return absl::StatusCode::kUnimplemented;
  return absl::StatusCode::kUnknown;
}

absl::StatusOr<std::vector<Tensor>> Call(const nb::object& function, const std::string& token,
                                         std::vector<Tensor> inputs) {
  HeldGil gil;
  try {
    std::vector<Tensor> outputs;
    const nb::object values = function(token, TensorsToPython(std::move(inputs)));
    for (nb::handle value : values) {
      outputs.push_back(
          TensorFromNumpy(nb::object(value[0]), static_cast<DType>(nb::cast<int>(value[1]))));
    }
    return outputs;
  } catch (nb::python_error& error) {
    const std::string kind = nb::cast<std::string>(error.type().attr("__name__"));
    return absl::Status(CodeFor(error),
                        kind + ": " + nb::cast<std::string>(nb::str(error.value())));
  } catch (const StatusError& error) {
    return error.status;
  } catch (const std::exception& error) {
    return InvalidArgument("The values that ", token, " returned: ", error.what());
  }
}

}  // namespace

void BindFunctions(nb::module_& m) {
  m.def(
      "set_front_end_functions",
      [](nb::object function) {
        SetFrontEndFunctions([held = HoldPython(std::move(function))](const std::string& token,
                                                                      std::vector<Tensor> inputs) {
          return Call(*held, token, std::move(inputs));
        });
      },
      "The function (token, arrays) -> [(array, dtype)] that PyFunc nodes call.");
  m.def("return_after_effects", [](Graph& body, const std::vector<Output>& results) {
    return BuildValue(ReturnAfterEffects(body, results));
  });
  m.def(
      "copy_handle_shapes",
      [](const Output& from, const Output& to) {
        to.node->set_output_handle(to.index, from.node->output_handle(from.index));
      },
      "Makes known what a captured resource points to.");
  m.def("define_function", [](const Graph& body, std::string name, std::vector<Output> arguments,
                              std::vector<Output> results, bool append_digest, Graph& into) {
    return BuildValue(DefineFunction(
        body, {std::move(name), std::move(arguments), std::move(results), append_digest}, into));
  });
  nb::class_<ByValueCapture>(m, "ByValueCapture")
      .def(nb::init<Graph&>(), nb::keep_alive<1, 2>())
      .def("capture", [](ByValueCapture& capture, const Output& outer) {
        return BuildValue(capture.Capture(outer));
      });
}

}  // namespace muster
