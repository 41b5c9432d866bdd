// Record files and event files.
#include "bindings.h"

#include "muster/checkpoint/records/record_reader.h"
#include "muster/checkpoint/records/record_writer.h"
#include "muster/train/events/event_writer.h"

namespace muster {
namespace {

absl::string_view View(const nb::bytes& bytes) {
  return absl::string_view(bytes.c_str(), bytes.size());
}

std::unique_ptr<RecordReader> OpenRecords(const std::string& path, const std::string& compression) {
  return RunValue(RecordReader::Open(path, RunValue(ParseRecordCompression(compression))));
}

nb::bytes NextRecord(RecordReader& reader) {
  absl::StatusOr<std::string> record = absl::UnknownError("not read");
  {
    ReleasedGil unlocked;
    record = reader.Next();
  }
  if (absl::IsOutOfRange(record.status())) throw nb::stop_iteration();
  ThrowIfRunError(record.status());
  return nb::bytes(record->data(), record->size());
}

std::unique_ptr<RecordWriter> NewRecordWriter(const std::string& path,
                                              const std::string& compression,
                                              std::optional<int> window_bits,
                                              std::optional<int> level, std::optional<int> method,
                                              std::optional<int> memory_level,
                                              std::optional<int> strategy) {
  RecordWriterOptions options;
  options.compression = RunValue(ParseRecordCompression(compression));
  options.window_bits = window_bits;
  options.level = level.value_or(options.level);
  options.method = method.value_or(options.method);
  options.memory_level = memory_level.value_or(options.memory_level);
  options.strategy = strategy.value_or(options.strategy);
  return RunValue(RecordWriter::Open(path, options));
}

std::shared_ptr<EventWriter> NewEventWriter(const std::string& directory, int max_queue,
                                            double flush_secs, const std::string& suffix) {
  EventWriterOptions options;
  options.suffix = suffix;
  options.max_queue = max_queue;
  options.flush_every = absl::Seconds(flush_secs);
  return RunValue(EventWriter::Open(directory, std::move(options)));
}

// Adding waits while the queue is full, so Python's other threads go on meanwhile.
using AddSerialized = absl::Status (EventWriter::*)(absl::string_view, EventWriter::Step);
template <AddSerialized add>
void Add(EventWriter& writer, const nb::bytes& serialized, EventWriter::Step step) {
  const absl::string_view view = View(serialized);
  absl::Status status;
  {
    ReleasedGil unlocked;
    status = (writer.*add)(view, step);
  }
  ThrowIfBuildError(status);
}

void BindRecords(nb::module_& m) {
  nb::class_<RecordReader>(m, "RecordReader")
      .def("__iter__", [](nb::handle self) { return nb::borrow(self); })
      .def("__next__", &NextRecord)
      .def_prop_ro("offset", &RecordReader::offset);
  m.def("open_records", &OpenRecords, nb::arg("path"), nb::arg("compression"));
  nb::class_<RecordWriter>(m, "RecordWriter")
      .def("write",
           [](RecordWriter& w, const nb::bytes& record) { ThrowIfRunError(w.Write(View(record))); })
      .def("flush", [](RecordWriter& w) { ThrowIfRunError(w.Flush()); })
      .def("close", [](RecordWriter& w) { ThrowIfRunError(w.Close()); });
  m.def("new_record_writer", &NewRecordWriter, nb::arg("path"), nb::arg("compression"),
        nb::arg("window_bits").none(), nb::arg("level").none(), nb::arg("method").none(),
        nb::arg("memory_level").none(), nb::arg("strategy").none());
}

}  // namespace

void BindSummaries(nb::module_& m) {
  BindRecords(m);
  nb::class_<EventWriter>(m, "EventWriter")
      .def("add_summary", &Add<&EventWriter::AddSummary>, nb::arg("summary"),
           nb::arg("step").none())
      .def("add_graph", &Add<&EventWriter::AddGraph>, nb::arg("graph_def"), nb::arg("step").none())
      .def("add_meta_graph", &Add<&EventWriter::AddMetaGraph>, nb::arg("meta_graph_def"),
           nb::arg("step").none())
      .def(
          "add_run_metadata",
          [](EventWriter& w, const nb::bytes& metadata, const std::string& tag,
             EventWriter::Step step) {
            const absl::string_view view = View(metadata);
            ReleasedGil unlocked;
            ThrowIfBuildError(w.AddRunMetadata(view, tag, step));
          },
          nb::arg("run_metadata"), nb::arg("tag"), nb::arg("step").none())
      .def(
          "add_event",
          [](EventWriter& w, const nb::bytes& event) {
            std::string copy(event.c_str(), event.size());
            ReleasedGil unlocked;
            ThrowIfRunError(w.AddEvent(std::move(copy)));
          },
          nb::arg("event"))
      // Errors of the file are logged and lose events; they do not end the training.
      .def(
          "flush", [](EventWriter& w) { (void)w.Flush(); }, nb::call_guard<ReleasedGil>())
      .def(
          "close", [](EventWriter& w) { (void)w.Close(); }, nb::call_guard<ReleasedGil>())
      .def(
          "reopen", [](EventWriter& w) { ThrowIfRunError(w.Reopen()); },
          nb::call_guard<ReleasedGil>())
      .def_prop_ro("is_closed", &EventWriter::is_closed)
      .def_prop_ro("directory", &EventWriter::directory);
  m.def("new_event_writer", &NewEventWriter, nb::arg("directory"), nb::arg("max_queue"),
        nb::arg("flush_secs"), nb::arg("suffix"));
  m.def(
      "cached_event_writer",
      [](const std::string& directory) { return RunValue(EventWriterCache::Get(directory)); },
      nb::arg("directory"), "The writer that hooks of this process share.");
  m.def("clear_event_writers", &EventWriterCache::Clear, nb::call_guard<ReleasedGil>());
  m.def("flush_event_writers", &EventWriter::FlushAll, nb::call_guard<ReleasedGil>());
}

}  // namespace muster
