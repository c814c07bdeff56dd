#ifndef EBB_TESTS_SUPPORT_MEMORY_LIMIT_H_
#define EBB_TESTS_SUPPORT_MEMORY_LIMIT_H_

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>

#include "tests/support/process_memory.h"

namespace ebb {

// The process may map so much more while this lives. REQUIRES: MemoryLimitsHold().
class MemoryLimit {
 public:
  explicit MemoryLimit(uint64_t more_bytes) {
    EXPECT_EQ(getrlimit(RLIMIT_AS, &before_), 0);
    rlimit limit = before_;
    limit.rlim_cur = MeasureProcess().virtual_bytes + more_bytes;
    EXPECT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  }
  ~MemoryLimit() { EXPECT_EQ(setrlimit(RLIMIT_AS, &before_), 0); }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_MEMORY_LIMIT_H_
