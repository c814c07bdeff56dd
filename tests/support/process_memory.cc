#include "tests/support/process_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

namespace ebb {

ProcessMemory MeasureProcess() {
  size_t virtual_pages = 0, resident_pages = 0;
  std::ifstream("/proc/self/statm") >> virtual_pages >> resident_pages;
  EXPECT_GT(resident_pages, 0u);
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return {virtual_pages * page_bytes, resident_pages * page_bytes};
}

bool MemoryLimitsHold() {
  constexpr size_t kBytes = 64 << 20;
  rlimit before{};
  EXPECT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlimit limit = before;
  limit.rlim_cur = MeasureProcess().virtual_bytes + kBytes / 2;
  EXPECT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  void* const mapped =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  if (mapped == MAP_FAILED) return true;
  munmap(mapped, kBytes);
  return false;
}

}  // namespace ebb
