// Whether a cache has lost rows for good: when a change of where rows lie stopped half-way.
#ifndef EBB_KV_CACHE_HEALTH_H_
#define EBB_KV_CACHE_HEALTH_H_

#include "ebb/status.h"

namespace ebb {

class CacheHealth {
 public:
  // Returns the reason why rows were lost, which ends the sequence; OK while none was.
  [[nodiscard]] Status Check() const {
    if (is_consistent_) return lost_;
    return Lost(OutOfMemory("memory ran out while rows moved"));
  }
  // Tables and pages agree.
  [[nodiscard]] bool is_consistent() const { return is_consistent_; }

  // Records the error that stopped a change half-way, if it is one, and returns it as Check() does
  // from now on.
  Status Record(const Status& status) {
    if (status.ok()) return status;
    lost_ = Lost(status);
    return lost_;
  }
  // Memory ran out half-way: tables and pages disagree.
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
