#include "src/base/processors.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/skip.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

// Simulates the kernel of a machine with `num_cpus` cpus, which refuses shorter masks and has
// `allowed` in the mask.
ReadAffinity KernelWith(size_t num_cpus, std::vector<int> allowed) {
  return [num_cpus, allowed = std::move(allowed)](size_t bytes, cpu_set_t* mask) {
    if (bytes * 8 < num_cpus) return EINVAL;
    for (const int cpu : allowed) CPU_SET_S(cpu, bytes, mask);
    return 0;
  };
}

TEST(CpusInMask, AreThoseThatAreSet) {
  EXPECT_THAT(CpusInMask(KernelWith(64, {3, 0, 17})), ElementsAre(0, 3, 17));
}

TEST(CpusInMask, MayBeBeyondTheUsualMask) {
  EXPECT_THAT(CpusInMask(KernelWith(8192, {5, 1024, 8191})), ElementsAre(5, 1024, 8191));
}

TEST(CpusInMask, AreAllThatAreOnlineWhenTheMaskCannotBeRead) {
  const auto online = static_cast<size_t>(sysconf(_SC_NPROCESSORS_ONLN));
  EXPECT_THAT(CpusInMask([](size_t, cpu_set_t*) { return EPERM; }), SizeIs(online));
  EXPECT_THAT(CpusInMask([](size_t, cpu_set_t*) { return EINVAL; }), SizeIs(online));
  EXPECT_THAT(CpusInMask(KernelWith(64, {})), SizeIs(online));
}

// ProcessorsTest simulates a machine by files below a folder.
class ProcessorsTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = folder_.File(path);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void WriteTopology(int cpu, const std::string& name, const std::string& list) const {
    Write("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/" + name, list + "\n");
  }
  void WriteQuota(const std::string& quota) const {
    Write("proc/self/cgroup", "0::/\n");
    Write("proc/self/mountinfo", "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    Write("sys/fs/cgroup/cpu.max", quota + "\n");
  }
  [[nodiscard]] Processors Count(const std::vector<int>& cpus) const {
    return CountProcessors(cpus, folder_.File(""));
  }

  TempFolder folder_;
};

TEST_F(ProcessorsTest, AreCountedByCpuWhenTheTopologyIsUnknown) {
  const Processors processors = Count({0, 1, 5});
  EXPECT_EQ(processors.hardware_threads, 3);
  EXPECT_EQ(processors.cores, 3);
  EXPECT_EQ(processors.quota, 0);
  EXPECT_EQ(processors.threads, 3);
}

TEST_F(ProcessorsTest, TwoHardwareThreadsOfACoreCountOnce) {
  for (const char* name : {"core_cpus_list", "thread_siblings_list"}) {
    for (const int cpu : {0, 1}) {
      WriteTopology(cpu, name, std::to_string(cpu) + "," + std::to_string(cpu + 2));
      WriteTopology(cpu + 2, name, std::to_string(cpu) + "," + std::to_string(cpu + 2));
    }
    const Processors all = Count({0, 1, 2, 3});
    EXPECT_EQ(all.hardware_threads, 4) << name;
    EXPECT_EQ(all.cores, 2) << name;
    EXPECT_EQ(all.threads, 2) << name;
    EXPECT_EQ(Count({0, 2}).threads, 1) << name;
    EXPECT_EQ(Count({0, 1}).threads, 2) << name;
    EXPECT_EQ(Count({3}).threads, 1) << name;
    std::filesystem::remove_all(folder_.File("sys"));
  }
}

TEST_F(ProcessorsTest, ACpuWithoutTopologyIsACoreOfItsOwn) {
  WriteTopology(0, "core_cpus_list", "0-1");
  WriteTopology(1, "core_cpus_list", "0-1");
  WriteTopology(2, "core_cpus_list", "");
  EXPECT_EQ(Count({0, 1, 2, 3}).cores, 3);
}

// The quota must be rounded down: threads that use it up before the period ends are all stopped.
TEST_F(ProcessorsTest, AQuotaIsRoundedDownToThreadsAndIsAtLeastOne) {
  const std::pair<const char*, int> cases[] = {
      {"10000 100000", 1},  {"100000 100000", 1}, {"100001 100000", 1},    {"150000 100000", 1},
      {"200000 100000", 2}, {"399999 100000", 3}, {"9000000 100000", 4},   {"max 100000", 4},
      {"nonsense", 4},      {"1000 1000000", 1},  {"900000000000000 1", 4}};
  for (const auto& [quota, threads] : cases) {
    WriteQuota(quota);
    EXPECT_EQ(Count({0, 1, 2, 3}).threads, threads) << quota;
  }
}

TEST_F(ProcessorsTest, AMaskTighterThanTheQuotaDecides) {
  WriteQuota("250000 100000");
  const Processors processors = Count({4, 6});
  EXPECT_EQ(processors.quota, 2.5);
  EXPECT_EQ(processors.threads, 2);
}

TEST(AvailableProcessors, FollowTheAffinityMaskOfTheCallingThread) {
  const std::vector<int> allowed = AllowedCpus();
  std::thread([&] {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(allowed.back(), &mask);
    ASSERT_EQ(sched_setaffinity(0, sizeof(mask), &mask), 0);
    EXPECT_THAT(AllowedCpus(), ElementsAre(allowed.back()));
    EXPECT_EQ(AvailableProcessors().hardware_threads, 1);
    EXPECT_EQ(AvailableProcessors().threads, 1);
  }).join();
  EXPECT_EQ(AllowedCpus(), allowed);
}

// RealGroup is a control group of this system that is removed at the end of the test.
class RealGroup {
 public:
  // Makes a group with a quota of one processor, below the first hierarchy that permits it. If none
  // does, returns nullopt and writes each hierarchy's error to `why`.
  static std::optional<RealGroup> Make(std::string* why) {
    const std::string name = "ebb_processors_test_" + std::to_string(getpid());
    for (const std::string top : {"/sys/fs/cgroup/cpu/", "/sys/fs/cgroup/"}) {
      const std::filesystem::path folder = top + name;
      std::error_code error;
      if (!std::filesystem::create_directory(folder, error)) {
        *why += folder.string() + ": " + error.message() + "; ";
        continue;
      }
      RealGroup group(folder);
      const bool v1 = std::filesystem::exists(folder / "cpu.cfs_quota_us");
      const bool limited = v1 ? WriteText(folder / "cpu.cfs_period_us", "100000") &&
                                    WriteText(folder / "cpu.cfs_quota_us", "100000")
                              : std::filesystem::exists(folder / "cpu.max") &&
                                    WriteText(folder / "cpu.max", "100000 100000");
      if (limited) return group;
      *why += folder.string() + " takes no quota; ";
    }
    return std::nullopt;
  }
  RealGroup(RealGroup&& other) noexcept : folder_(std::exchange(other.folder_, {})) {}
  RealGroup& operator=(RealGroup&&) = delete;
  ~RealGroup() {
    // Repeat rmdir(), since a group may count as busy for a moment after its last process ended.
    for (int attempt = 0; !folder_.empty() && rmdir(folder_.c_str()) != 0 && attempt < 100;) {
      ++attempt;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  [[nodiscard]] bool MoveIn(pid_t process) const {
    return WriteText(folder_ / "cgroup.procs", std::to_string(process));
  }
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

 private:
  explicit RealGroup(std::filesystem::path folder) : folder_(std::move(folder)) {}

  static bool WriteText(const std::filesystem::path& path, const std::string& text) {
    std::ofstream file(path);
    file << text << std::flush;
    return file.good();
  }

  std::filesystem::path folder_;
};

// Returns the processors that a child process inside the group counts; nullopt if the child could
// not be moved there.
std::optional<Processors> AskInside(const RealGroup& group) {
  int ends[2];
  if (pipe(ends) != 0) return std::nullopt;
  const pid_t child = fork();
  if (child == 0) {
    if (!group.MoveIn(getpid())) _exit(1);
    const Processors processors = AvailableProcessors();
    _exit(write(ends[1], &processors, sizeof(processors)) == sizeof(processors) ? 0 : 1);
  }
  close(ends[1]);
  Processors processors;
  const bool read_all = read(ends[0], &processors, sizeof(processors)) == sizeof(processors);
  close(ends[0]);
  if (child > 0) waitpid(child, nullptr, 0);
  return read_all ? std::optional(processors) : std::nullopt;
}

TEST(AvailableProcessors, FollowTheQuotaOfARealControlGroup) {
  std::filesystem::path folder;
  {
    std::string why;
    const std::optional<RealGroup> group = RealGroup::Make(&why);
    if (!group.has_value())
      EBB_SKIP_WITHOUT("cgroups") << "no control group can be made here: " << why;
    folder = group->folder();
    const std::optional<Processors> inside = AskInside(*group);
    if (!inside.has_value()) EBB_SKIP_WITHOUT("cgroups") << "no process can be moved to " << folder;
    EXPECT_EQ(inside->quota, 1);
    EXPECT_EQ(inside->threads, 1);
    const Processors outside = AvailableProcessors();
    EXPECT_EQ(inside->hardware_threads, outside.hardware_threads);
    EXPECT_EQ(inside->cores, outside.cores);
  }
  EXPECT_FALSE(std::filesystem::exists(folder)) << "the group was left behind";
}

}  // namespace
}  // namespace ebb
