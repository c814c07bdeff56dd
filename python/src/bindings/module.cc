// The extension module ebb._ebb: errors, and what the other sources bind.
#include "bindings.h"

#include <cstdio>

#include "ebb/version.h"

namespace ebb::python {
namespace {

nb::object ErrorType(const char* name) { return nb::module_::import_("ebb.errors").attr(name); }

const char* TypeOf(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument:
      return "InvalidArgument";
    case StatusCode::kNotFound:
      return "NotFound";
    case StatusCode::kUnsupported:
      return "Unsupported";
    case StatusCode::kCorrupt:
      return "Corrupt";
    case StatusCode::kContextFull:
    case StatusCode::kT0Full:
    case StatusCode::kT1Full:
    case StatusCode::kOutOfMemory:
    case StatusCode::kStorageFull:
    case StatusCode::kQueueFull:
      return "LimitReached";
    case StatusCode::kIo:
      return "IoError";
    default:
      return "Error";
  }
}

// Returns the keyword argument that sets a field of the library's options.
std::string ArgumentOf(std::string_view field) {
  constexpr std::pair<std::string_view, const char*> kArguments[] = {
      {"kv_cap_bytes", "kv_cap"},   {"tiers.t0_cap_bytes", "t0"},
      {"tiers.t0_share", "t0"},     {"tiers.t1_path", "t1"},
      {"tiers.t1_read", "t1_read"}, {"tiers.t1_mass", "t1_read"},
      {"tiers.t1_rows", "t1_read"}, {"tiers.t1_reuse", "t1_read"},
      {"tiers.t2_rows", "t2"},      {"tiers.evict_beyond_caps", "evict"},
      {"tiers.t2_share", "t2"},     {"tiers.evict_share", "evict"},
  };
  for (const auto& [name, argument] : kArguments) {
    if (field == name) return argument;
  }
  constexpr std::string_view kPolicy = "policy.";
  return std::string(field.starts_with(kPolicy) ? field.substr(kPolicy.size()) : field);
}

void RaiseObject(nb::handle exception) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

}  // namespace

void Raise(const Status& status) {
  nb::object error = ErrorType(TypeOf(status.code()))(std::string(status.message()),
                                                      std::string(StatusCodeName(status.code())),
                                                      ArgumentOf(status.field()));
  RaiseObject(error);
  std::abort();
}

HeldObject::~HeldObject() {
  if (!nb::is_alive()) {
    value_.release();
    return;
  }
  nb::gil_scoped_acquire gil;
  value_.reset();
}

Failure::~Failure() {
  if (!exception_.is_valid()) return;
  if (!nb::is_alive()) {
    exception_.release();
    return;
  }
  nb::gil_scoped_acquire gil;
  exception_.reset();
}

void Failure::Take(const nb::python_error& error) {
  if (is_set()) return;
  exception_ = nb::borrow(error.value());
  is_set_.store(true, std::memory_order_release);
}

void Failure::Set(const char* type, const std::string& message) {
  if (is_set()) return;
  exception_ = ErrorType(type)(message);
  is_set_.store(true, std::memory_order_release);
}

void Failure::RaiseIfSet() {
  if (!is_set()) return;
  if (exception_.is_valid()) {
    const nb::object exception = std::move(exception_);
    RaiseObject(exception);
  }
  RaiseObject(ErrorType("SessionFailed")(
      "its policy raised an exception in an earlier step, so that its scores no longer fit its "
      "rows; open a new session"));
}

EngineTurn::Hold::Hold(std::shared_ptr<EngineTurn> turn) : turn_(std::move(turn)) {
  if (turn_->owner_.load() == std::this_thread::get_id()) {
    Raise(InvalidArgument(
        "a policy or a callback of a step used the engine that waits for it; read what it needs "
        "before or after the step"));
  }
  nb::gil_scoped_release release;
  turn_->mutex_.lock();
  turn_->owner_ = std::this_thread::get_id();
}

EngineTurn::Hold::~Hold() {
  turn_->DestroyAll();
  turn_->owner_ = std::thread::id();
  turn_->mutex_.unlock();
}

void EngineTurn::DestroyAll() {
  // A session's policy may be the last to hold another one.
  while (!to_destroy_.empty()) {
    const std::unique_ptr<Session> session = std::move(to_destroy_.back());
    to_destroy_.pop_back();
  }
}

void EngineTurn::Destroy(std::unique_ptr<Session> session) {
  if (owner_.load() == std::this_thread::get_id()) {
    to_destroy_.push_back(std::move(session));
    return;
  }
  const nb::gil_scoped_release release;
  mutex_.lock();
  owner_ = std::this_thread::get_id();
  session.reset();
  DestroyAll();
  owner_ = std::thread::id();
  mutex_.unlock();
}

SessionHolder::~SessionHolder() {
  if (session != nullptr) turn->Destroy(std::move(session));
}

}  // namespace ebb::python

NB_MODULE(_ebb, module) {
  using namespace ebb::python;
  // A program may end while modules still hold models and sessions.
  nanobind::set_leak_warnings(false);
  module.attr("__version__") = EBB_VERSION;
  module.attr("__doc__") = "The C++ core of the package ebb, bound to Python.";
  BindModel(module);
  BindPolicy(module);
  BindEngine(module);
  BindFit(module);
  BindLab(module);
  BindStudy(module);
}
