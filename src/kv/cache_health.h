// Records whether a cache has lost rows for good because a move of rows stopped half-way.
#ifndef EBB_KV_CACHE_HEALTH_H_
#define EBB_KV_CACHE_HEALTH_H_

#include "ebb/status.h"

namespace ebb {

class CacheHealth {
 public:
  // Returns the error by which rows were lost, after which the sequence cannot continue; OK if none
  // were.
  [[nodiscard]] Status Check() const {
    if (is_consistent_) return lost_;
    return Lost(OutOfMemory("memory ran out while rows moved"));
  }
  // Returns whether tables and pages agree with each other.
  [[nodiscard]] bool is_consistent() const { return is_consistent_; }

  // Records an error that stopped a move half-way, and returns it with a note that the sequence
  // cannot continue; OK changes nothing.
  Status Record(const Status& status) {
    if (status.ok()) return status;
    lost_ = Lost(status);
    return lost_;
  }
  // Records that memory ran out half-way, so that tables and pages may disagree.
  void RecordOutOfMemory() { is_consistent_ = false; }

 private:
  static Status Lost(const Status& status) {
    return {status.code(), status.message() + "; this sequence cannot go on"};
  }

  Status lost_;
  bool is_consistent_ = true;
};

}  // namespace ebb

#endif  // EBB_KV_CACHE_HEALTH_H_
