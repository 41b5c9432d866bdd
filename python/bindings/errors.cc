#include <atomic>
#include <thread>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "bindings.h"
#include <unistd.h>

#include "muster/base/mutex.h"
#include "muster/device/gpu/gpu_programs.h"
#include "muster/graph/gradients/gradients.h"
#include "muster/transport/api/call.h"

namespace muster {
namespace {

std::atomic<bool> exiting{false};
std::thread::id main_thread;    // set before `exiting`
std::atomic<int> in_python{0};  // threads between EnterPython and LeavePython

// Whether the program ends, on a thread that is not its main one.
bool IsExiting() {
  return exiting && std::this_thread::get_id() != main_thread;
}

constexpr absl::string_view kPythonErrorPayload = "muster/python-exception";

nb::object* error_maker = nullptr;  // muster.errors._make(code, message, while_running, kind)

// The exceptions that statuses keep, by an id that the statuses carry. An exception is released
// after the last copy of its status is gone; since that may happen on a thread without the GIL, the
// release is deferred. Where C++ drops the status of a call that a signal has interrupted, for
// example of a log line, the interruption is raised again as soon as its thread continues in Python
// or waits.
class KeptExceptions {
 public:
  static KeptExceptions& Get() {
    static auto* kept = new KeptExceptions;
    return *kept;
  }

  // An interruption is never lost, even if its status is dropped. Requires: the GIL is held.
  absl::Cord Keep(nb::handle exception, bool is_interruption) {
    LetGo();
    uint64_t id;
    {
      MutexLock lock(mutex_);
      id = next_++;
      Kept& kept = kept_[id];
      kept.exception = exception.inc_ref().ptr();
      if (is_interruption) kept.interrupted = PyThread_get_thread_ident();
    }
    auto text = std::make_shared<const std::string>(absl::StrCat(prefix_, id));
    return absl::MakeCordFromExternal(*text, [this, id, text] { Drop(id); });
  }

  // Invalid when `payload` is not one of this process. Requires: the GIL is held.
  nb::object Find(const absl::Cord& payload) {
    const std::string text(payload);
    uint64_t id;
    absl::string_view rest = text;
    if (rest.substr(0, prefix_.size()) != prefix_) return nb::object();
    rest.remove_prefix(prefix_.size());
    if (!absl::SimpleAtoi(rest, &id)) return nb::object();
    MutexLock lock(mutex_);
    const auto found = kept_.find(id);
    if (found == kept_.end()) return nb::object();
    found->second.interrupted.reset();  // it is about to be raised
    return nb::borrow(found->second.exception);
  }

 private:
  struct Kept {
    PyObject* exception = nullptr;
    std::optional<unsigned long> interrupted;  // the thread in which it has not been raised yet
  };

  void Drop(uint64_t id) {
    {
      MutexLock lock(mutex_);
      const auto found = kept_.find(id);
      (found->second.interrupted ? lost_ : dropped_).push_back(found->second);
      kept_.erase(found);
    }
    if (Py_IsInitialized() && !IsExiting()) {
      Py_AddPendingCall(
          [](void*) {
            Get().LetGo();
            return Get().RaiseLost();
          },
          nullptr);
    }
  }

  // On the main thread, as all pending calls.
  int RaiseLost() {
    std::vector<Kept> lost;
    {
      MutexLock lock(mutex_);
      lost.swap(lost_);
    }
    int result = 0;
    for (const Kept& kept : lost) {
      PyObject* const type = reinterpret_cast<PyObject*>(Py_TYPE(kept.exception));
      if (*kept.interrupted == PyThread_get_thread_ident()) {
        PyErr_SetObject(type, kept.exception);
        result = -1;
      } else if (PyErr_GivenExceptionMatches(type, PyExc_KeyboardInterrupt) != 0) {
        PyThreadState_SetAsyncExc(*kept.interrupted, type);
      }
      Py_DECREF(kept.exception);
    }
    return result;
  }

  // Requires: the GIL is held.
  void LetGo() {
    std::vector<Kept> dropped;
    {
      MutexLock lock(mutex_);
      dropped.swap(dropped_);
    }
    for (const Kept& kept : dropped) Py_DECREF(kept.exception);
  }

  // Unique in all processes: a status from another process carries an id that is not valid here.
  const std::string prefix_ = absl::StrCat("python-exception-", NewRequestId(), "-");
  Mutex mutex_;
  uint64_t next_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::flat_hash_map<uint64_t, Kept> kept_ ABSL_GUARDED_BY(mutex_);
  std::vector<Kept> dropped_ ABSL_GUARDED_BY(mutex_);
  std::vector<Kept> lost_ ABSL_GUARDED_BY(mutex_);  // dropped before they were raised
};

nb::object KeptBy(const absl::Status& status) {
  const auto payload = status.GetPayload(kPythonErrorPayload);
  return payload ? KeptExceptions::Get().Find(*payload) : nb::object();
}

std::string TextOf(nb::handle exception) {
  nb::object text = nb::steal(PyObject_Str(exception.ptr()));
  if (!text.is_valid()) {
    PyErr_Clear();
    return "";
  }
  nb::object bytes = nb::steal(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "replace"));
  return bytes.is_valid() ? std::string(PyBytes_AsString(bytes.ptr())) : "";
}

// Of tf.errors.OpError and what derives from it.
absl::StatusCode CodeOf(nb::handle exception) {
  nb::object code = nb::getattr(exception, "error_code", nb::none());
  int64_t value = 0;
  if (!nb::hasattr(exception, "node_def") || !nb::try_cast(code, value) || value <= 0 || value > 16)
    return absl::StatusCode::kUnknown;
  return static_cast<absl::StatusCode>(value);
}

absl::Status Keep(nb::handle exception, bool is_interruption) {
  const absl::StatusCode code = CodeOf(exception);
  std::string text = TextOf(exception);
  if (code == absl::StatusCode::kUnknown)
    text = absl::StrCat(nb::type_name(exception.type()).c_str(), ": ", text);
  absl::Status status(code, text);
  status.SetPayload(std::string(kPythonErrorPayload),
                    KeptExceptions::Get().Keep(exception, is_interruption));
  return status;
}

// Exceptions that signal handlers raise, in whatever Python code is running.
bool IsInterruption(nb::handle exception) {
  return PyErr_GivenExceptionMatches(exception.ptr(), PyExc_KeyboardInterrupt) != 0 ||
         PyErr_GivenExceptionMatches(exception.ptr(), PyExc_SystemExit) != 0;
}

}  // namespace

absl::Status KeepException(nb::handle exception) {
  return Keep(exception, /*is_interruption=*/false);
}

absl::Status CallPython(const std::function<void()>& call) {
  // A step must end even then: the session that it belongs to waits for it.
  if (IsExiting()) return absl::CancelledError("The interpreter is shutting down");
  HeldGil gil;
  try {
    call();
    return absl::OkStatus();
  } catch (nb::python_error& error) {
    nb::object exception = nb::borrow(error.value());
    if (nb::object traceback = nb::borrow(error.traceback()); traceback.is_valid())
      PyException_SetTraceback(exception.ptr(), traceback.ptr());
    return Keep(exception, IsInterruption(exception));
  } catch (const StatusError& error) {
    return error.status;
  } catch (const std::exception& error) {
    return Internal("A Python function could not be called, or its result not converted: ",
                    error.what());
  }
}

void RaiseKeptPythonError(const absl::Status& status) {
  nb::object exception = KeptBy(status);
  if (!exception.is_valid()) return;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

nb::object ExceptionFor(const absl::Status& status, bool while_running) {
  nb::object kept = KeptBy(status);
  if (kept.is_valid()) return kept;
  const std::string message(status.message());
  return (*error_maker)(static_cast<int>(status.code()),
                        nb::steal<nb::str>(PyUnicode_DecodeUTF8(
                            message.data(), static_cast<Py_ssize_t>(message.size()), "replace")),
                        while_running, ErrorKind(status));
}

absl::Status RunSignalHandlers() {
  return CallPython([] {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    // Asynchronous exceptions from other threads are raised with the next bytecode instruction.
    nb::dict names;
    PyObject* const none = PyRun_String("None", Py_eval_input, names.ptr(), names.ptr());
    if (none == nullptr) throw nb::python_error();
    Py_DECREF(none);
  });
}

void ReleasedGil::EnterPython() {
  ++in_python;  // before the check: prepare_exit sets `exiting` first and then reads the count
  if (!IsExiting()) return;
  --in_python;
  while (IsExiting()) pause();
}

void ReleasedGil::LeavePython() {
  --in_python;
}

void BindErrors(nb::module_& m) {
  m.def(
      "prepare_exit",
      [] {
        main_thread = std::this_thread::get_id();
        exiting = true;
        // Threads that are about to take the GIL get it, and Python functions that C++ has called
        // return before the interpreter ends. The wait ends after a second.
        ReleasedGil unlocked;
        for (int i = 0; i < 1000 && in_python > 0; ++i) absl::SleepFor(absl::Milliseconds(1));
        GpuPrograms::StopAll();
      },
      "Called last at the end of the program: see ReleasedGil.");

  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void*) {
        try {
          std::rethrow_exception(thrown);
        } catch (const StatusError& error) {
          try {
            if (error_maker == nullptr) {
              PyErr_SetString(PyExc_RuntimeError, std::string(error.status.message()).c_str());
              return;
            }
            nb::object exception = ExceptionFor(error.status, error.while_running);
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
