// Shared by the sources of the extension module `ebb._ebb` share: errors as Python exceptions, the
// lock that keeps an engine on one thread at a time, and the session that views of its signals
// keep.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_PYTHON_BINDINGS_H_
#define EBB_PYTHON_BINDINGS_H_

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "ebb/engine.h"
#include "ebb/generate.h"
#include "ebb/lab/eval_run.h"
#include "ebb/model.h"
#include "ebb/policy.h"

namespace ebb::python {

namespace nb = nanobind;

// Raises the exception of ebb.errors that stands for an error's code. REQUIRES: the GIL.
[[noreturn]] void Raise(const Status& status);
inline void RaiseIfError(const Status& status) {
  if (!status.ok()) Raise(status);
}
template <typename T>
T ValueOrRaise(Result<T> result) {
  if (!result.ok()) Raise(result.error());
  return *std::move(result);
}

// Calls `work` without the GIL.
template <typename Work>
auto WithoutGil(Work work) {
  nb::gil_scoped_release release;
  return work();
}

// Returns bytes as a Python string; bytes that are not UTF-8 become U+FFFD.
inline nb::str TextOf(std::string_view bytes) {
  return nb::steal<nb::str>(
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace"));
}

// A NumPy array with a copy of `values`.
template <typename T>
nb::object CopyOf(std::span<const T> values) {
  auto* const data = new T[values.size()];
  std::copy(values.begin(), values.end(), data);
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T>(data, {values.size()}, owner));
}

// An exception that Python code raised inside a step, which is no place to throw: kept until the
// step has ended. Once set it stays set: a session whose policy failed takes no further step.
class Failure {
 public:
  ~Failure();
  // Takes the exception that was just caught; the first one counts. REQUIRES: the GIL.
  void Take(const nb::python_error& error);
  // Takes ebb.errors.`type`(message). REQUIRES: the GIL.
  void Set(const char* type, const std::string& message);
  [[nodiscard]] bool is_set() const { return is_set_.load(std::memory_order_acquire); }
  // Raises the exception the first time, and ebb.SessionFailed from then on. REQUIRES: the GIL.
  void RaiseIfSet();

 private:
  std::atomic<bool> is_set_ = false;
  nb::object exception_;  // null once it was raised
};

// Keeps an engine and its sessions on one thread at a time, whatever threads Python code has:
// others wait. Python code that a step calls cannot use the engine, which would wait for itself.
class EngineTurn {
 public:
  class Hold {
   public:
    // REQUIRES: the GIL, which it gives away while it waits.
    explicit Hold(std::shared_ptr<EngineTurn> turn);
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    std::shared_ptr<EngineTurn> turn_;
  };

  // Destroys a session of the engine when no step is running: at once, after another thread's
  // step, or at the end of this thread's own, from which Python code may let a session go.
  // REQUIRES: the GIL, which it gives away while it waits.
  void Destroy(std::unique_ptr<Session> session);

 private:
  // REQUIRES: the engine is this thread's.
  void DestroyAll();

  std::mutex mutex_;
  std::atomic<std::thread::id> owner_ = {};
  std::vector<std::unique_ptr<Session>> to_destroy_;  // the owner's
};

struct PythonEngine {
  std::shared_ptr<const Model> model;
  std::unique_ptr<Engine> engine;
  std::shared_ptr<EngineTurn> turn = std::make_shared<EngineTurn>();
};

// A Python object that C++ objects share, which may let it go without the GIL.
class HeldObject {
 public:
  explicit HeldObject(nb::object value) : value_(std::move(value)) {}
  ~HeldObject();
  HeldObject(const HeldObject&) = delete;
  HeldObject& operator=(const HeldObject&) = delete;
  [[nodiscard]] nb::handle get() const { return value_; }

 private:
  nb::object value_;
};
using Held = std::shared_ptr<const HeldObject>;

struct SessionHolder;
// The session that is being opened, as the policies that are made for it know it.
using MakingSlot = std::shared_ptr<std::weak_ptr<SessionHolder>>;

// A session and the failure of its policy's Python code.
struct SessionHolder {
  std::shared_ptr<const Model> model;
  std::shared_ptr<EngineTurn> turn;
  std::shared_ptr<Failure> failure = std::make_shared<Failure>();
  MakingSlot making;
  std::unique_ptr<Session> session;
  // The generation that may take the session's next step; null: any.
  std::atomic<const void*> generating = nullptr;

  SessionHolder() = default;
  ~SessionHolder();
  SessionHolder(const SessionHolder&) = delete;
  SessionHolder& operator=(const SessionHolder&) = delete;
};

// The parts of a session's policy that are Python objects, where there are any.
struct PythonParts {
  Held scorer;     // called without arguments, it gives an ebb.Scorer; null: a built-in one
  Held placement;  // the same of an ebb.Placement
  [[nodiscard]] bool empty() const { return scorer == nullptr && placement == nullptr; }
};

// A function for SessionOptions::make_policy. Views that Python code is given keep the session that
// `making` says; without one, as in an evaluation, they are views of copies.
std::function<Result<Policy>(const PolicyContext&)> MakePythonPolicy(
    PolicySpec spec, PythonParts parts, bool may_move, MakingSlot making,
    std::shared_ptr<Failure> failure);

// Options as Python code gives them: a dictionary of texts and numbers, in the words of the
// program's own options. What it does not have is not set.
[[nodiscard]] PolicySpec ReadPolicy(const nb::dict& options);
// PythonTiers holds the tiers that options ask of an engine, and the shares of a session's rows in
// them; none if no tier is named.
struct PythonTiers {
  std::optional<EngineTiers> engine;
  std::optional<TierShares> shares;
};
[[nodiscard]] PythonTiers ReadTiers(const nb::dict& options);
[[nodiscard]] PythonParts ReadParts(const nb::dict& options);
[[nodiscard]] SessionOptions ReadSession(const nb::dict& options);
[[nodiscard]] EngineOptions ReadEngine(const nb::dict& options);
[[nodiscard]] SamplingOptions ReadSampling(const nb::dict& options);
[[nodiscard]] EvalTaskRequest ReadTask(const nb::dict& options);
// Returns the rules of this name; raises InvalidArgument if there are none.
[[nodiscard]] AnswerRules AnswerRulesOrRaise(std::string_view name);
// Returns how many problems are answered at a time: one per core if the options do not say it.
[[nodiscard]] int ReadWorkers(const nb::dict& options);

template <typename T>
constexpr const char* ExpectedType() {
  if constexpr (std::is_same_v<T, bool>) return "True or False";
  if constexpr (std::is_integral_v<T>) return "a whole number";
  if constexpr (std::is_floating_point_v<T>) return "a number";
  if constexpr (std::is_same_v<T, std::string>) return "a text";
  return "a list of texts";
}

template <typename T>
std::optional<T> Get(const nb::dict& options, const char* key) {
  if (!options.contains(key)) return std::nullopt;
  nb::object value = options[key];
  if (value.is_none()) return std::nullopt;
  try {
    return nb::cast<T>(value);
  } catch (const nb::cast_error&) {
    throw nb::type_error((std::string(key) + ": expected " + ExpectedType<T>() + ", found " +
                          nb::repr(value).c_str())
                             .c_str());
  }
}

void BindModel(nb::module_& module);
void BindEngine(nb::module_& module);
void BindPolicy(nb::module_& module);
void BindFit(nb::module_& module);
void BindLab(nb::module_& module);
void BindStudy(nb::module_& module);

}  // namespace ebb::python

#endif  // EBB_PYTHON_BINDINGS_H_
