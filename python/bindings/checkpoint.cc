// Checkpoints from Python: looking into them, the state file, which one is the newest.
#include "bindings.h"

#include "muster/checkpoint/checkpoint_reader.h"
#include "muster/checkpoint/checkpoint_state.h"

namespace muster {
namespace {

// Names and paths may be any bytes; Python represents those by surrogates.
nb::object Text(const std::string& text) {
  return nb::steal<nb::object>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape"));
}

std::string FromText(nb::handle text) {
  if (PyBytes_Check(text.ptr())) {
    return std::string(PyBytes_AS_STRING(text.ptr()),
                       static_cast<size_t>(PyBytes_GET_SIZE(text.ptr())));
  }
  const nb::object bytes =
      nb::steal<nb::object>(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "surrogateescape"));
  if (!bytes.is_valid()) throw nb::python_error();
  return FromText(bytes);
}

nb::bytes Bytes(const std::string& bytes) {
  return nb::bytes(bytes.data(), bytes.size());
}

CheckpointState MakeState(const std::string& directory, const std::string& newest,
                          std::vector<std::string> all, std::vector<double> timestamps,
                          std::optional<double> last_preserved_timestamp,
                          bool save_relative_paths) {
  return BuildValue(MakeCheckpointState(directory, newest, std::move(all), std::move(timestamps),
                                        last_preserved_timestamp, save_relative_paths));
}

nb::dict Variables(const CheckpointReader& reader) {
  nb::dict result;
  for (const auto& [name, variable] : reader.variables()) {
    nb::list shape;
    for (int64_t size : variable.shape.dims()) shape.append(size);
    result[Text(name)] = nb::make_tuple(static_cast<int>(variable.dtype), shape);
  }
  return result;
}

}  // namespace

void BindCheckpoint(nb::module_& m) {
  nb::class_<CheckpointReader>(m, "CheckpointReader", "Looks into a checkpoint of either format.")
      .def("has_tensor",
           [](const CheckpointReader& r, nb::handle name) { return r.HasTensor(FromText(name)); })
      .def(
          "get_tensor",
          [](const CheckpointReader& r, nb::handle name) {
            const std::string wanted = FromText(name);
            absl::StatusOr<Tensor> tensor;
            {
              ReleasedGil release;
              tensor = r.GetTensor(wanted);
            }
            return TensorToNumpy(RunValue(std::move(tensor)));
          },
          "The value, as an array.")
      .def("variables", &Variables, "Name -> (number of the type, shape as a list).")
      .def("debug_string", [](const CheckpointReader& r) { return Bytes(r.DebugString()); });
  m.def(
      "open_checkpoint",
      [](nb::handle prefix) {
        const std::string path = FromText(prefix);
        absl::StatusOr<std::unique_ptr<CheckpointReader>> reader;
        {
          ReleasedGil release;
          reader = CheckpointReader::Open(path);
        }
        return RunValue(std::move(reader));
      },
      "A reader of the checkpoint with that prefix.");
  m.def(
      "read_checkpoint_state",
      [](nb::handle directory, nb::handle latest_filename) {
        return Bytes(SerializeCheckpointState(
            RunValue(ReadCheckpointState(FromText(directory), FromText(latest_filename)))));
      },
      "The state of a folder, serialized.");
  m.def(
      "make_checkpoint_state",
      [](const std::string& directory, const std::string& newest, std::vector<std::string> all,
         std::vector<double> timestamps, std::optional<double> last_preserved_timestamp) {
        return Bytes(SerializeCheckpointState(MakeState(directory, newest, std::move(all),
                                                        std::move(timestamps),
                                                        last_preserved_timestamp, false)));
      },
      nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(),
      "The state that a folder's file would hold, serialized.");
  m.def(
      "write_checkpoint_state",
      [](const std::string& directory, const std::string& newest, std::vector<std::string> all,
         std::vector<double> timestamps, std::optional<double> last_preserved_timestamp,
         bool save_relative_paths, const std::string& latest_filename) {
        const CheckpointState state =
            MakeState(directory, newest, std::move(all), std::move(timestamps),
                      last_preserved_timestamp, save_relative_paths);
        ThrowIfRunError(WriteCheckpointState(directory, state, latest_filename));
      },
      nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg(),
      "Replaces the state of a folder.");
  m.def("checkpoint_exists", [](nb::handle prefix) { return CheckpointExists(FromText(prefix)); });
  m.def(
      "checkpoint_time", [](nb::handle prefix) { return CheckpointTime(FromText(prefix)); },
      "Seconds since 1970 at which the checkpoint was written, or None.");
  m.def("remove_checkpoint", [](nb::handle prefix, const std::string& meta_suffix) {
    ThrowIfRunError(RemoveCheckpoint(FromText(prefix), meta_suffix));
  });
  m.def("meta_graph_file_name", [](nb::handle prefix, const std::string& meta_suffix) {
    return Text(MetaGraphFileName(FromText(prefix), meta_suffix));
  });
}

}  // namespace muster
