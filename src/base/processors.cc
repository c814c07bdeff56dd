#include "src/base/processors.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

#include "src/base/cgroup_limits.h"

namespace ebb {
namespace {

struct CpuSetDeleter {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};

int ReadOwnAffinity(size_t bytes, cpu_set_t* mask) {
  return sched_getaffinity(0, bytes, mask) == 0 ? 0 : errno;
}

std::vector<int> OnlineCpus() {
  std::vector<int> cpus(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  for (size_t i = 0; i < cpus.size(); ++i) cpus[i] = static_cast<int>(i);
  return cpus;
}

// Returns the list of all cpus that share this cpu's core, itself included, as the kernel writes
// it: "0,64". Empty if unknown.
std::string CpusOfSameCore(int cpu, const std::string& root) {
  const std::filesystem::path topology =
      std::filesystem::path(root) /
      ("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology");
  // The file had the second name before Linux 5.2.
  for (const char* name : {"core_cpus_list", "thread_siblings_list"}) {
    std::ifstream file(topology / name);
    std::string list;
    if (file >> list) return list;
  }
  return {};
}

int CountCores(std::span<const int> cpus, const std::string& root) {
  std::set<std::string> known_cores;
  int num_unknown = 0;
  for (const int cpu : cpus) {
    std::string core = CpusOfSameCore(cpu, root);
    if (core.empty()) {
      ++num_unknown;
    } else {
      known_cores.insert(std::move(core));
    }
  }
  return static_cast<int>(known_cores.size()) + num_unknown;
}

}  // namespace

std::vector<int> CpusInMask(const ReadAffinity& read) {
  // kMostCpus ends the search; no kernel supports so many (8192 in 2024).
  constexpr int kMostCpus = 1 << 20;
  for (int room = CPU_SETSIZE; room <= kMostCpus; room *= 2) {
    const std::unique_ptr<cpu_set_t, CpuSetDeleter> mask(CPU_ALLOC(room));
    if (mask == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(room);
    CPU_ZERO_S(bytes, mask.get());
    const int error = read(bytes, mask.get());
    if (error == EINVAL) continue;
    if (error != 0) break;
    std::vector<int> cpus;
    for (int cpu = 0; cpu < room; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, mask.get())) cpus.push_back(cpu);
    }
    if (cpus.empty()) break;
    return cpus;
  }
  return OnlineCpus();
}

Processors CountProcessors(std::span<const int> cpus, const std::string& root) {
  Processors processors = {.hardware_threads = static_cast<int>(cpus.size()),
                           .cores = CountCores(cpus, root),
                           .quota = CgroupQuota(root)};
  processors.threads = processors.cores;
  // Compare doubles before the conversion, since a quota may exceed the range of int.
  if (processors.quota > 0 && processors.quota < processors.cores) {
    processors.threads = std::max(1, static_cast<int>(processors.quota));
  }
  return processors;
}

Processors AvailableProcessors() { return CountProcessors(AllowedCpus()); }

std::vector<int> AllowedCpus() { return CpusInMask(ReadOwnAffinity); }

}  // namespace ebb
