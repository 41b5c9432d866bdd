#include "muster/graph/graph.h"

#include "bindings.h"
#include "train_bindings.h"

#include "muster/graph/build/fill.h"
#include "muster/graph/build/scope.h"
#include "muster/graph/op_names.h"
#include "muster/graph/op_registry.h"
#include "muster/graph/shape_context.h"

namespace muster {

std::shared_ptr<nb::object> HoldPython(nb::object object) {
  return std::shared_ptr<nb::object>(new nb::object(std::move(object)), [](nb::object* p) {
    if (!nb::is_alive()) return;
    HeldGil gil;
    delete p;
  });
}

nb::object ShapeToPython(const PartialShape& shape) {
  if (!shape.known_rank()) return nb::none();
  nb::list dims;
  for (int64_t size : shape.dims()) size < 0 ? dims.append(nb::none()) : dims.append(size);
  return dims;
}

PartialShape ShapeFromPython(nb::handle value) {
  if (value.is_none()) return PartialShape();
  Dims dims;
  for (nb::handle size : value) dims.push_back(size.is_none() ? -1 : nb::cast<int64_t>(size));
  return BuildValue(PartialShape::Make(dims));
}

namespace {

std::string TextOf(nb::handle value) {
  if (PyBytes_Check(value.ptr())) {
    return std::string(PyBytes_AS_STRING(value.ptr()),
                       static_cast<size_t>(PyBytes_GET_SIZE(value.ptr())));
  }
  return nb::cast<std::string>(value);
}

template <typename T, typename Convert>
std::vector<T> ListOf(nb::handle values, Convert convert) {
  std::vector<T> list;
  for (nb::handle value : values) list.push_back(convert(value));
  return list;
}

DType DTypeOf(nb::handle value) {
  return static_cast<DType>(nb::cast<int>(value));
}

AttrValue ListAttr(nb::handle value, const std::string& element) {
  if (nb::len(value) == 0) return AttrValue(EmptyList());
  if (element == "string") return AttrValue(ListOf<std::string>(value, TextOf));
  if (element == "int")
    return AttrValue(ListOf<int64_t>(value, [](nb::handle v) { return nb::cast<int64_t>(v); }));
  if (element == "float")
    return AttrValue(ListOf<float>(value, [](nb::handle v) { return nb::cast<float>(v); }));
  if (element == "bool")
    return AttrValue(ListOf<bool>(value, [](nb::handle v) { return nb::cast<bool>(v); }));
  if (element == "type") return AttrValue(ListOf<DType>(value, DTypeOf));
  if (element == "shape") return AttrValue(ListOf<PartialShape>(value, ShapeFromPython));
  if (element == "tensor")
    return AttrValue(ListOf<Tensor>(value, [](nb::handle v) { return nb::cast<Tensor>(v); }));
  throw nb::type_error(
      ("attributes of kind list(" + element + ") cannot be given from Python").c_str());
}

std::string GuessKind(nb::handle value) {
  if (nb::isinstance<nb::bool_>(value)) return "bool";
  if (nb::isinstance<nb::int_>(value)) return "int";
  if (nb::isinstance<nb::float_>(value)) return "float";
  if (nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value)) {
    return nb::len(value) == 0 ? "list(string)" : "list(" + GuessKind(value[0]) + ")";
  }
  if (nb::isinstance<Tensor>(value)) return "tensor";
  return "string";
}

}  // namespace

AttrValue AttrFromPython(nb::handle value, const std::string& kind) {
  if (kind.empty()) return AttrFromPython(value, GuessKind(value));
  if (kind == "int") return AttrValue(nb::cast<int64_t>(value));
  if (kind == "float") return AttrValue(nb::cast<float>(value));
  if (kind == "bool") return AttrValue(nb::cast<bool>(value));
  if (kind == "string") return AttrValue(TextOf(value));
  if (kind == "type") return AttrValue(DTypeOf(value));
  if (kind == "shape") return AttrValue(ShapeFromPython(value));
  if (kind == "tensor") return AttrValue(nb::cast<Tensor>(value));
  if (kind == "func") return AttrValue(FunctionRef{nb::cast<std::string>(value), {}});
  if (kind.starts_with("list(")) return ListAttr(value, kind.substr(5, kind.size() - 6));
  throw nb::type_error(("unknown kind of attribute: " + kind).c_str());
}

namespace {

nb::object BytesOf(const std::string& text) {
  return nb::steal<nb::object>(
      PyBytes_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
}

// One overload per alternative of AttrValue; types come back as their numbers.
nb::object ToPython(std::monostate) {
  return nb::none();
}
nb::object ToPython(const std::string& v) {
  return BytesOf(v);
}
nb::object ToPython(int64_t v) {
  return nb::int_(v);
}
nb::object ToPython(float v) {
  return nb::float_(static_cast<double>(v));
}
nb::object ToPython(bool v) {
  return nb::bool_(v);
}
nb::object ToPython(DType v) {
  return nb::int_(static_cast<int>(v));
}
nb::object ToPython(const PartialShape& v) {
  return ShapeToPython(v);
}
nb::object ToPython(const Tensor& v) {
  return nb::cast(v);
}
nb::object ToPython(const FunctionRef& v) {
  return nb::str(v.name.c_str());
}
nb::object ToPython(const std::shared_ptr<const FunctionRef>& v) {
  return nb::str(v->name.c_str());
}
nb::object ToPython(const AttrPlaceholder& v) {
  return nb::str(v.name.c_str());
}
nb::object ToPython(EmptyList) {
  return nb::list();
}
template <typename T>
nb::object ToPython(const std::vector<T>& values) {
  nb::list list;
  for (const T& value : values) list.append(ToPython(value));
  return list;
}
nb::object ToPython(const std::vector<bool>& values) {
  nb::list list;
  for (const bool value : values) list.append(nb::bool_(value));
  return list;
}

AttrMap AttrsFromPython(const std::string& op, const nb::dict& given) {
  AttrMap attrs;
  const OpRegistration* registration = OpRegistry::Global().Find(op);
  for (auto [key, value] : given) {
    const std::string name = nb::cast<std::string>(key);
    const AttrDef* def = registration != nullptr ? registration->def.FindAttr(name) : nullptr;
    attrs.emplace(name, AttrFromPython(value, def != nullptr ? def->type : ""));
  }
  return attrs;
}

std::vector<NodeInput> InputsFromPython(const nb::list& given) {
  std::vector<NodeInput> inputs;
  for (nb::handle input : given) {
    if (nb::isinstance<Output>(input)) {
      inputs.emplace_back(nb::cast<Output>(input));
    } else {
      inputs.emplace_back(ListOf<Output>(input, [](nb::handle v) { return nb::cast<Output>(v); }));
    }
  }
  return inputs;
}

DeviceFunction WrapDeviceFunction(nb::object function) {
  auto held = HoldPython(std::move(function));
  return [held](const Node& node) -> absl::StatusOr<std::string> {
    std::string device;
    RETURN_IF_ERROR(CallPython([&] {
      nb::object result = (*held)(nb::cast(const_cast<Node*>(&node), nb::rv_policy::reference));
      if (!result.is_none()) device = nb::cast<std::string>(result);
    }));
    return device;
  };
}

void BindOpDefs(nb::module_& m) {
  nb::class_<ArgDef>(m, "ArgDef")
      .def_ro("name", &ArgDef::name)
      .def_prop_ro("type", [](const ArgDef& a) { return static_cast<int>(a.type); })
      .def_ro("type_attr", &ArgDef::type_attr)
      .def_ro("number_attr", &ArgDef::number_attr)
      .def_ro("type_list_attr", &ArgDef::type_list_attr)
      .def_ro("is_ref", &ArgDef::is_ref);
  nb::class_<AttrDef>(m, "AttrDef")
      .def_ro("name", &AttrDef::name)
      .def_ro("type", &AttrDef::type)
      .def_ro("minimum", &AttrDef::minimum)
      .def_ro("allowed_strings", &AttrDef::allowed_strings)
      .def_ro("since_2x", &AttrDef::since_2x)
      .def_prop_ro("allowed_types",
                   [](const AttrDef& a) {
                     nb::list types;
                     for (DType type : a.allowed_types) types.append(static_cast<int>(type));
                     return types;
                   })
      .def_prop_ro("has_default", [](const AttrDef& a) { return a.default_value.has_value(); })
      .def_prop_ro("default", [](const AttrDef& a) {
        return a.default_value ? AttrToPython(*a.default_value) : nb::none();
      });
  nb::class_<OpDef>(m, "OpDef")
      .def_ro("name", &OpDef::name)
      .def_ro("inputs", &OpDef::inputs)
      .def_ro("outputs", &OpDef::outputs)
      .def_ro("attrs", &OpDef::attrs)
      .def_ro("is_stateful", &OpDef::is_stateful);
  m.def(
      "op_def",
      [](const std::string& op) { return &BuildValue(OpRegistry::Global().Lookup(op))->def; },
      nb::rv_policy::reference);
  m.def("op_names", &OpNames);
}

void BindNode(nb::module_& m) {
  nb::class_<Output>(m, "Output")
      .def(nb::init<Node*, int>(), nb::keep_alive<1, 2>())
      .def_prop_ro(
          "node", [](const Output& o) { return o.node; }, nb::rv_policy::reference)
      .def_ro("index", &Output::index)
      .def_prop_ro("dtype", [](const Output& o) { return static_cast<int>(o.dtype()); })
      .def_prop_ro("shape", [](const Output& o) { return ShapeToPython(o.shape()); })
      .def("set_shape",
           [](const Output& o, nb::handle shape) {
             o.node->set_output_shape(o.index, BuildValue(o.shape().Merge(ShapeFromPython(shape))));
           })
      .def("constant_value",
           [](const Output& o) -> nb::object {
             const std::optional<Tensor> value = ConstantValue(o);
             return value ? nb::cast(*value) : nb::none();
           })
      .def("constant_value_as_shape",
           [](const Output& o) { return ShapeToPython(ConstantValueAsShape(o)); })
      .def("__eq__", [](const Output& a, const Output& b) { return a == b; })
      .def("__hash__",
           [](const Output& o) {
             return reinterpret_cast<size_t>(o.node) * 31 + static_cast<size_t>(o.index);
           })
      .def("__repr__", &Output::name);
  nb::class_<Node>(m, "Node")
      .def_prop_ro("id", &Node::id)
      .def_prop_ro("name", &Node::name)
      .def_prop_ro("op", &Node::op)
      .def_prop_ro("op_def", &Node::def, nb::rv_policy::reference)
      .def_prop_ro("num_outputs", &Node::num_outputs)
      .def_prop_ro("num_inputs", &Node::num_inputs)
      .def_prop_ro("inputs", [](const Node& n) { return n.inputs(); })
      .def_prop_ro(
          "control_inputs", [](const Node& n) { return n.control_inputs(); },
          nb::rv_policy::reference)
      .def_prop_ro("consumers",
                   [](const Node& n) {
                     nb::list list;
                     for (const Node::Consumer& c : n.consumers()) {
                       list.append(nb::make_tuple(c.node->id(), c.input, c.output));
                     }
                     return list;
                   })
      .def("output", [](Node& n, int i) { return n.output(i); })
      .def_prop_rw("device", &Node::device,
                   [](Node& n, const std::string& device) { n.set_device(device); })
      .def("has_attr",
           [](const Node& n, const std::string& name) { return n.FindAttr(name) != nullptr; })
      .def("attr",
           [](const Node& n, const std::string& name) -> nb::object {
             const AttrValue* value = n.FindAttr(name);
             return value != nullptr ? AttrToPython(*value) : nb::none();
           })
      .def("attr_kind",
           [](const Node& n, const std::string& name) {
             const AttrValue* value = n.FindAttr(name);
             return value != nullptr ? value->kind() : std::string();
           })
      .def_prop_ro("attr_names",
                   [](const Node& n) {
                     std::vector<std::string> names;
                     for (const auto& [name, value] : n.attrs()) names.push_back(name);
                     return names;
                   })
      .def("set_attr",
           [](Node& n, const std::string& name, nb::handle value) {
             const AttrDef* def = n.def().FindAttr(name);
             n.SetAttr(name, AttrFromPython(value, def != nullptr ? def->type : ""));
           })
      .def("clear_attr", [](Node& n, const std::string& name) { n.ClearAttr(name); })
      .def_prop_ro("colocation_groups", &Node::ColocationGroups)
      .def("__repr__",
           [](const Node& n) { return absl::StrCat("<Node ", n.name(), " ", n.op(), ">"); });
}

// What `emit` has built in a scope, or its error.
template <typename Emit>
Output Emitted(const Scope& scope, Emit emit) {
  const Scope own = scope.WithFreshStatus();
  const Output output = emit(own);
  ThrowIfBuildError(own.status());
  return output;
}

void BindScope(nb::module_& m) {
  nb::class_<Scope>(m, "Scope")
      .def(nb::init<Graph&>(), nb::keep_alive<1, 2>())
      .def_prop_ro("prefix", &Scope::prefix)
      .def("name_scope",
           [](const Scope& s, const std::string& name) { return BuildValue(s.TryNameScope(name)); })
      .def("with_prefix", &Scope::WithPrefix)
      .def("with_device",
           [](const Scope& s, const std::string& device) { return s.WithDevice(device); })
      .def("with_device_function",
           [](const Scope& s, nb::object function) {
             return s.WithDeviceFunction(WrapDeviceFunction(std::move(function)));
           })
      .def("without_devices", &Scope::WithoutDevices)
      .def("with_control_dependencies",
           [](const Scope& s, const std::vector<Node*>& nodes) {
             return s.WithControlDependencies(nodes);
           })
      .def("without_control_dependencies", &Scope::WithoutControlDependencies)
      .def(
          "control_dependencies", [](const Scope& s) { return s.ControlInputsFor({}); },
          nb::rv_policy::reference)
      .def("colocated_with",
           [](const Scope& s, Node& node, bool ignore_existing) {
             return s.ColocatedWith(node, ignore_existing);
           })
      .def("without_colocation", &Scope::WithoutColocation)
      .def("with_container", &Scope::WithContainer)
      .def("with_attr",
           [](const Scope& s, const std::string& name, nb::handle value) {
             return s.WithAttr(name, AttrFromPython(value, ""));
           })
      .def(
          "add",
          [](const Scope& s, const std::string& op, const nb::list& inputs, const nb::dict& attrs,
             const std::string& name) {
            return BuildValue(
                s.TryAdd(op, InputsFromPython(inputs), AttrsFromPython(op, attrs), name));
          },
          nb::rv_policy::reference, nb::arg("op"), nb::arg("inputs"), nb::arg("attrs"),
          nb::arg("name") = "")
      // These give their result the name of the scope.
      .def("shape",
           [](const Scope& s, Output x, int out_type, bool optimize) {
             return Emitted(s, [&](const Scope& own) {
               return ShapeNamed(own, x, static_cast<DType>(out_type), optimize);
             });
           })
      .def("filled",
           [](const Scope& s, const std::vector<int64_t>& dims, const Tensor& value) {
             const Shape shape = BuildValue(Shape::Make(dims));
             return Emitted(s, [&](const Scope& own) { return FilledNamed(own, shape, value); });
           })
      .def("filled",
           [](const Scope& s, Output shape, const Tensor& value) {
             return Emitted(s, [&](const Scope& own) { return FilledNamed(own, shape, value); });
           })
      .def("zeros_like", [](const Scope& s, Output x, bool optimize) {
        return Emitted(s, [&](const Scope& own) { return ZerosLikeNamed(own, x, optimize); });
      });
}

}  // namespace

nb::object AttrToPython(const AttrValue& value) {
  return std::visit([](const auto& v) { return ToPython(v); }, value.value());
}

void BindGraph(nb::module_& m) {
  BindOpDefs(m);
  nb::class_<Graph>(m, "Graph")
      .def(nb::init<>())
      .def_prop_ro("num_nodes", &Graph::num_nodes)
      .def(
          "node", [](const Graph& g, int i) { return g.nodes().at(static_cast<size_t>(i)).get(); },
          nb::rv_policy::reference_internal)
      .def(
          "find", [](const Graph& g, const std::string& name) { return g.FindNode(name); },
          nb::rv_policy::reference_internal)
      .def(
          "unique_name",
          [](Graph& g, const std::string& name, bool mark) { return g.UniqueName(name, mark); },
          nb::arg("name"), nb::arg("mark_as_used") = true)
      .def("add_control_input",
           [](Graph& g, Node& node, Node& before) { g.AddControlInput(node, before); })
      .def("update_input", [](Graph& g, Node& node, int i,
                              Output input) { ThrowIfBuildError(g.UpdateInput(node, i, input)); })
      .def_rw("seed", &Graph::seed, nb::arg().none())
      .def_prop_rw(
          "producer", [](const Graph& g) { return g.versions().producer; },
          [](Graph& g, int v) { g.versions().producer = v; })
      .def(
          "seeds_for",
          [](const Graph& g, std::optional<int64_t> op_seed) {
            const SeedPair pair = SeedsFor(g, op_seed);
            return std::make_pair(pair.seed, pair.seed2);
          },
          nb::arg("op_seed").none());
  BindNode(m);
  BindScope(m);
  m.def("is_valid_node_name", [](const std::string& name) { return IsValidNodeName(name); });
  m.def("is_valid_scope_name", [](const std::string& name) { return IsValidScopeName(name); });
}

}  // namespace muster
