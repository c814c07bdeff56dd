#include "tests/support/process_memory.h"

#include <gtest/gtest.h>
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

}  // namespace ebb
