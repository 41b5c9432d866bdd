// Savers: saveables that C++ knows or that Python describes, the nodes, saving and restoring.
#include "muster/train/saving/saver.h"

#include "bindings.h"

#include "muster/graph/gradients/gradients.h"

namespace muster {
namespace {

[[noreturn]] void ThrowSaverError(const absl::Status& status) {
  throw StatusError{status, ErrorKind(status).empty()};
}

nb::object ShapesToPython(const std::optional<std::vector<RestoredShape>>& shapes) {
  if (!shapes) return nb::none();
  nb::list list;
  for (const RestoredShape& shape : *shapes) {
    if (const auto* known = std::get_if<Shape>(&shape)) {
      list.append(ShapeToPython(PartialShape(*known)));
    } else {
      list.append(nb::cast(std::get<Output>(shape)));
    }
  }
  return list;
}

std::optional<std::vector<RestoredShape>> ShapesFromPython(const nb::object& given) {
  if (given.is_none()) return std::nullopt;
  std::vector<RestoredShape> shapes;
  for (nb::handle shape : given) {
    if (nb::isinstance<Output>(shape)) {
      shapes.emplace_back(nb::cast<Output>(shape));
    } else {
      shapes.emplace_back(BuildValue(Shape::Make(nb::cast<std::vector<int64_t>>(shape))));
    }
  }
  return shapes;
}

// (name, slice, dtype, device, tensor): the tensor is a function of the scope it is read in.
SaveSpec SpecFromPython(nb::handle given) {
  SaveSpec spec;
  spec.name = nb::cast<std::string>(given[0]);
  spec.slice = nb::cast<std::string>(given[1]);
  spec.dtype = static_cast<DType>(nb::cast<int>(given[2]));
  spec.device = nb::cast<std::string>(given[3]);
  spec.tensor =
      [held = HoldPython(nb::borrow(given[4]))](const Scope& scope) -> absl::StatusOr<Output> {
    Output tensor;
    RETURN_IF_ERROR(CallPython([&] { tensor = nb::cast<Output>((*held)(scope)); }));
    return tensor;
  };
  return spec;
}

Saveable SaveableFromPython(std::string name, const nb::list& specs, Node* op, nb::object restore) {
  Saveable saveable;
  saveable.name = std::move(name);
  saveable.op = op;
  for (nb::handle spec : specs) saveable.specs.push_back(SpecFromPython(spec));
  saveable.restore =
      [held = HoldPython(std::move(restore))](
          const Scope& scope, const std::vector<Output>& tensors,
          const std::optional<std::vector<RestoredShape>>& shapes) -> absl::StatusOr<Node*> {
    Node* node = nullptr;
    RETURN_IF_ERROR(CallPython(
        [&] { node = nb::cast<Node*>((*held)(scope, tensors, ShapesToPython(shapes))); }));
    return node;
  };
  return saveable;
}

SaverNodes NodesFromPython(nb::object save, nb::object restore) {
  SaverNodes nodes;
  if (!save.is_none()) {
    nodes.save = [held = HoldPython(std::move(save))](
                     const Scope& scope, Output filename,
                     const std::vector<Saveable>& saveables) -> absl::StatusOr<Node*> {
      Node* node = nullptr;
      RETURN_IF_ERROR(
          CallPython([&] { node = nb::cast<Node*>((*held)(scope, filename, saveables)); }));
      return node;
    };
  }
  if (!restore.is_none()) {
    nodes.restore = [held = HoldPython(std::move(restore))](
                        const Scope& scope, Output filename, const std::vector<Saveable>& saveables,
                        int preferred_shard) -> absl::StatusOr<std::vector<Output>> {
      std::vector<Output> tensors;
      RETURN_IF_ERROR(CallPython([&] {
        tensors =
            nb::cast<std::vector<Output>>((*held)(scope, filename, saveables, preferred_shard));
      }));
      return tensors;
    };
  }
  return nodes;
}

void BindSaveables(nb::module_& m) {
  nb::class_<Saveable>(m, "Saveable")
      .def_ro("name", &Saveable::name)
      .def_prop_ro(
          "slice",
          [](const Saveable& s) { return s.specs.empty() ? std::string() : s.specs[0].slice; })
      .def(
          "restore",
          [](const Saveable& s, const Scope& scope, const std::vector<Output>& tensors,
             const nb::object& shapes) {
            return BuildValue(s.restore(scope, tensors, ShapesFromPython(shapes)));
          },
          nb::rv_policy::reference, nb::arg("scope"), nb::arg("tensors"), nb::arg("shapes").none());
  m.def(
      "reference_saveable",
      [](std::string name, Output variable, std::string slice, std::optional<Output> read) {
        return ReferenceSaveable(std::move(name), variable, std::move(slice),
                                 read.value_or(Output()));
      },
      nb::arg("name"), nb::arg("variable"), nb::arg("slice") = "", nb::arg("read") = nb::none());
  m.def(
      "resource_saveable",
      [](std::string name, Output handle, std::string slice, std::optional<Output> read) {
        return BuildValue(
            ResourceSaveable(std::move(name), handle, std::move(slice), read.value_or(Output())));
      },
      nb::arg("name"), nb::arg("handle"), nb::arg("slice") = "", nb::arg("read") = nb::none());
  m.def("custom_saveable", &SaveableFromPython, nb::arg("name"), nb::arg("specs"),
        nb::arg("op").none(), nb::arg("restore"));
  m.def("comes_from_variable", &ComesFromVariable);
}

void BindSaverDef(nb::module_& m) {
  nb::class_<SaverDef>(m, "SaverDef")
      .def(nb::init<>())
      .def_rw("filename_tensor_name", &SaverDef::filename_tensor_name)
      .def_rw("save_tensor_name", &SaverDef::save_tensor_name)
      .def_rw("restore_op_name", &SaverDef::restore_op_name)
      .def_rw("max_to_keep", &SaverDef::max_to_keep)
      .def_rw("sharded", &SaverDef::sharded)
      .def_rw("keep_checkpoint_every_n_hours", &SaverDef::keep_checkpoint_every_n_hours)
      .def_prop_rw(
          "version", [](const SaverDef& d) { return static_cast<int>(d.version); },
          [](SaverDef& d, int version) { d.version = static_cast<CheckpointVersion>(version); });
  m.def(
      "build_saver_nodes",
      [](const Scope& scope, std::vector<Saveable> saveables, const std::string& name,
         const std::string& filename, bool reshape, bool sharded, bool bulk_restore,
         bool restore_sequentially, int max_to_keep, double keep_checkpoint_every_n_hours,
         int version, nb::object save, nb::object restore) {
        SaverOptions options;
        options.name = name;
        options.filename = filename;
        options.reshape = reshape;
        options.sharded = sharded;
        options.bulk_restore = bulk_restore;
        options.restore_sequentially = restore_sequentially;
        options.max_to_keep = max_to_keep;
        options.keep_checkpoint_every_n_hours = keep_checkpoint_every_n_hours;
        options.version = static_cast<CheckpointVersion>(version);
        options.nodes = NodesFromPython(std::move(save), std::move(restore));
        return BuildValue(BuildSaverNodes(scope, std::move(saveables), options));
      },
      nb::arg("scope"), nb::arg("saveables"), nb::arg("name"), nb::arg("filename"),
      nb::arg("reshape"), nb::arg("sharded"), nb::arg("bulk_restore"),
      nb::arg("restore_sequentially"), nb::arg("max_to_keep"),
      nb::arg("keep_checkpoint_every_n_hours"), nb::arg("version"), nb::arg("save").none(),
      nb::arg("restore").none());
}

nb::object Save(Saver& saver, Session& session, const std::string& path,
                std::optional<int64_t> step, const std::string& latest_filename,
                const std::string& meta_graph_suffix, bool write_state, nb::object meta_graph) {
  SaveOptions options;
  options.latest_filename = latest_filename;
  options.meta_graph_suffix = meta_graph_suffix;
  options.write_state = write_state;
  if (!meta_graph.is_none()) {
    options.meta_graph = [held =
                              HoldPython(std::move(meta_graph))]() -> absl::StatusOr<std::string> {
      std::string bytes;
      RETURN_IF_ERROR(CallPython([&] {
        const nb::bytes result = nb::cast<nb::bytes>((*held)());
        bytes.assign(result.c_str(), result.size());
      }));
      return bytes;
    };
  }
  absl::StatusOr<std::optional<std::string>> prefix = absl::UnknownError("");
  {
    ReleasedGil unlocked;
    prefix = saver.Save(session, path, step, options);
  }
  if (!prefix.ok()) ThrowSaverError(prefix.status());
  return prefix->has_value() ? nb::cast(**prefix) : nb::none();
}

}  // namespace

void BindSaver(nb::module_& m) {
  BindSaveables(m);
  BindSaverDef(m);
  nb::class_<Saver>(m, "Saver")
      .def_static(
          "from_def",
          [](const SaverDef& def, bool pad_step_number, bool save_relative_paths) {
            SaverOptions options;
            options.pad_step_number = pad_step_number;
            options.save_relative_paths = save_relative_paths;
            return BuildValue(Saver::FromDef(def, std::move(options)));
          },
          nb::arg("saver_def"), nb::arg("pad_step_number") = false,
          nb::arg("save_relative_paths") = false)
      .def_static("empty", [] { return Saver::Empty(); })
      .def_prop_ro("saver_def", &Saver::def)
      .def("save", &Save, nb::arg("session"), nb::arg("path"), nb::arg("step").none(),
           nb::arg("latest_filename"), nb::arg("meta_graph_suffix"), nb::arg("write_state"),
           nb::arg("meta_graph").none())
      .def("restore",
           [](Saver& saver, Session& session, const std::string& prefix) {
             absl::Status status;
             {
               ReleasedGil unlocked;
               status = saver.Restore(session, prefix);
             }
             if (!status.ok()) ThrowSaverError(status);
           })
      .def_prop_ro("last_checkpoints", &Saver::last_checkpoints)
      .def_prop_rw("last_checkpoints_with_time", &Saver::last_checkpoints_with_time,
                   &Saver::set_last_checkpoints_with_time)
      .def("recover_last_checkpoints", &Saver::RecoverLastCheckpoints)
      .def_prop_ro("next_checkpoint_time", &Saver::next_checkpoint_time);
}

}  // namespace muster
