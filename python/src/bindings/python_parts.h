// Shared by the sources of policies in Python: a scorer and a placement of C++ that ask Python
// objects.
//
// Nothing that Python code raises leaves a step, which would stay half settled: it becomes the
// session's Failure, after which nothing is decided any more and no row moves.
//
// Views. Arrays that Python code is given show the engine's own memory, without a copy, and are
// valid during the call alone. All views of a call share one owner object (Lease). When the call
// has ended and something still refers to it, Python code has kept a view, or a view of a view:
// that is the session's Failure (ebb.ViewKept). The owner keeps the session, which takes no further
// step, so that what was kept shows memory that is there and no longer changes.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_PYTHON_PYTHON_PARTS_H_
#define EBB_PYTHON_PYTHON_PARTS_H_

#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"

namespace ebb::python {

// LeaseBase is what views keep: the session whose memory they show, or copies of that memory.
struct LeaseBase {
  std::shared_ptr<SessionHolder> session;
  std::vector<std::unique_ptr<std::byte[]>> copies;
};

// Lease makes the views of one call and notices whether Python code kept one.
class Lease {
 public:
  explicit Lease(std::shared_ptr<SessionHolder> session)
      : base_(new LeaseBase{std::move(session), {}}),
        owner_(base_, [](void* p) noexcept { delete static_cast<LeaseBase*>(p); }) {}

  // Returns a read-only array over `values`, which strides, in elements, may step over. Where no
  // session keeps the memory it is a view of a copy.
  template <typename T>
  nb::object View(std::span<const T> values, std::initializer_list<size_t> shape,
                  std::initializer_list<int64_t> strides = {}) {
    const T* data = values.data();
    if (base_->session == nullptr && !values.empty()) {
      base_->copies.push_back(std::make_unique<std::byte[]>(values.size_bytes()));
      std::memcpy(base_->copies.back().get(), data, values.size_bytes());
      data = reinterpret_cast<const T*>(base_->copies.back().get());
    }
    return nb::cast(nb::ndarray<nb::numpy, const T>(
        data, shape.size(), shape.begin(), owner_, strides.size() > 0 ? strides.begin() : nullptr));
  }
  template <typename T>
  nb::object View(std::span<const T> values) {
    return View(values, {values.size()});
  }

  // Returns whether no view is left. Garbage that refers to one is collected first.
  [[nodiscard]] bool IsReturned() const {
    if (Py_REFCNT(owner_.ptr()) == 1) return true;
    nb::module_::import_("gc").attr("collect")();
    return Py_REFCNT(owner_.ptr()) == 1;
  }

 private:
  LeaseBase* const base_;
  const nb::capsule owner_;
};

// Borrowed is something of a step that Python code reads by name while the step lasts.
template <typename T>
class Borrowed {
 public:
  Borrowed(const T* value, Lease* lease) : value_(value), lease_(lease) {}
  [[nodiscard]] const T& operator*() const {
    if (value_ != nullptr) return *value_;
    nb::object type = nb::module_::import_("ebb.errors").attr("ViewExpired");
    PyErr_SetString(type.ptr(), "it belongs to a step that is over; read it during the step");
    throw nb::python_error();
  }
  const T* operator->() const { return &**this; }
  [[nodiscard]] Lease* lease() const { return lease_; }
  void End() {
    value_ = nullptr;
    lease_ = nullptr;
  }

 private:
  const T* value_;
  Lease* lease_;
};

struct StepFacts {
  const StepSignals* step = nullptr;
  std::span<const GroupSignals> groups;
  const ModelShape* shape = nullptr;
};

// ebb.Step and ebb.Facts.
struct PyStep {
  Borrowed<StepFacts> facts;
};
struct PyFacts {
  Borrowed<PlacementInput> facts;
};

// Calls work(lease) for a scorer or a placement (`kind`) unless Python code of the session has
// failed. Takes what Python code raises into `failure`, and sets it if a view was kept.
template <typename Work>
void CallPython(const char* kind, const std::string& name,
                const std::weak_ptr<SessionHolder>& session, Failure* failure, Work work) {
  if (failure->is_set()) return;
  nb::gil_scoped_acquire gil;
  const std::shared_ptr<SessionHolder> held = session.lock();
  const auto fail = [&](const char* type, const std::string& why) {
    failure->Set(type, std::string(kind) + " \"" + name + "\"" + why);
  };
  try {
    Lease lease(held);
    work(&lease);
    if (!lease.IsReturned()) {
      fail("ViewKept",
           " kept a view of an array beyond its call; keep a copy (numpy.array(view)) instead");
    }
  } catch (nb::python_error& error) {
    failure->Take(error);
  } catch (const nb::builtin_exception& error) {
    failure->Set("ScorerError", error.what());
  } catch (const std::exception& error) {
    fail("ScorerError", std::string(": ") + error.what());
  }
}

// Makes a scorer of an ebb.Scorer.
[[nodiscard]] std::unique_ptr<Scorer> MakePythonScorer(nb::object object,
                                                       const PolicyExtension::Context& context,
                                                       std::weak_ptr<SessionHolder> session,
                                                       std::shared_ptr<Failure> failure);
// Makes a placement of an ebb.Placement. `may_move`: the engine has tiers besides T0.
[[nodiscard]] std::unique_ptr<Placement> MakePythonPlacement(nb::object object, bool may_move,
                                                             std::weak_ptr<SessionHolder> session,
                                                             std::shared_ptr<Failure> failure);
// Makes a placement that decides as a built-in one does, and nothing once Python code has failed.
[[nodiscard]] std::unique_ptr<Placement> GuardPlacement(std::unique_ptr<Placement> placement,
                                                        std::shared_ptr<Failure> failure);

}  // namespace ebb::python

#endif  // EBB_PYTHON_PYTHON_PARTS_H_
