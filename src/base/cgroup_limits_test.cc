#include "src/base/cgroup_limits.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

constexpr char kV2Mount[] =
    "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 master:2 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr char kV1Mount[] =
    "25 24 0:22 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n";

// CgroupLimitsTest simulates a system by files below a folder.
class CgroupLimitsTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = folder_.File(path);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  // Writes the files of /proc/self.
  void WriteProcess(const std::string& groups, const std::string& mounts) const {
    Write("proc/self/cgroup", groups);
    Write("proc/self/mountinfo",
          "22 27 0:21 / /proc rw,relatime - proc proc rw\n27 1 254:0 / / rw - ext4 /dev/vda rw\n" +
              mounts);
  }
  // Writes a group of version 1 into its folder.
  void WriteV1(const std::string& folder, const std::string& quota,
               const std::string& period) const {
    Write(folder + "/cpu.cfs_quota_us", quota + "\n");
    Write(folder + "/cpu.cfs_period_us", period + "\n");
  }
  [[nodiscard]] double Quota() const { return CgroupQuota(folder_.File("")); }

  TempFolder folder_;
};

TEST_F(CgroupLimitsTest, ASystemWithoutControlGroupsHasNone) {
  EXPECT_EQ(Quota(), 0);
  WriteProcess("", "");
  EXPECT_EQ(Quota(), 0);
}

TEST_F(CgroupLimitsTest, IsReadFromTheOwnGroupInVersion2) {
  WriteProcess("0::/user.slice/job\n", kV2Mount);
  Write("sys/fs/cgroup/user.slice/job/cpu.max", "150000 100000\n");
  EXPECT_EQ(Quota(), 1.5);
}

TEST_F(CgroupLimitsTest, IsReadFromTheOwnGroupInVersion1) {
  WriteProcess("5:cpuset:/elsewhere\n4:cpu,cpuacct:/job\n1:name=systemd:/other\n", kV1Mount);
  WriteV1("sys/fs/cgroup/cpu,cpuacct/job", "20000", "40000");
  EXPECT_EQ(Quota(), 0.5);
}

TEST_F(CgroupLimitsTest, TheTightestOfTheGroupsAboveCounts) {
  const std::string top = "sys/fs/cgroup";
  WriteProcess("0::/a/b/c\n", kV2Mount);
  Write(top + "/a/b/c/cpu.max", "300000 100000\n");
  Write(top + "/a/b/cpu.max", "50000 20000\n");
  Write(top + "/a/cpu.max", "max 100000\n");
  EXPECT_EQ(Quota(), 2.5);
  Write(top + "/cpu.max", "200000 100000\n");
  EXPECT_EQ(Quota(), 2);
  Write(top + "/a/beside/cpu.max", "10000 100000\n");
  EXPECT_EQ(Quota(), 2) << "a group beside the own one does not count";
}

TEST_F(CgroupLimitsTest, TheTightestOfTheGroupsAboveCountsInVersion1) {
  const std::string top = "sys/fs/cgroup/cpu,cpuacct";
  WriteProcess("4:cpu,cpuacct:/a/b\n", kV1Mount);
  WriteV1(top, "-1", "100000");
  WriteV1(top + "/a", "100000", "100000");
  WriteV1(top + "/a/b", "400000", "100000");
  EXPECT_EQ(Quota(), 1);
}

TEST_F(CgroupLimitsTest, BothVersionsAreAskedWhereBothAreMounted) {
  WriteProcess("4:cpu,cpuacct:/job\n0::/job\n",
               std::string(kV1Mount) +
                   "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n");
  Write("sys/fs/cgroup/unified/job/cgroup.procs", "");
  WriteV1("sys/fs/cgroup/cpu,cpuacct/job", "250000", "100000");
  EXPECT_EQ(Quota(), 2.5);
  Write("sys/fs/cgroup/unified/job/cpu.max", "120000 100000\n");
  EXPECT_EQ(Quota(), 1.2);
}

// A container without a namespace for control groups sees its path as outside, but the mount shows
// only its own group.
TEST_F(CgroupLimitsTest, AContainersMountShowsItsOwnGroup) {
  WriteProcess("0::/docker/abc/inner\n",
               "30 24 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
  Write("sys/fs/cgroup/cpu.max", "300000 100000\n");
  Write("sys/fs/cgroup/inner/cpu.max", "400000 100000\n");
  EXPECT_EQ(Quota(), 3);
  Write("sys/fs/cgroup/inner/cpu.max", "100000 100000\n");
  EXPECT_EQ(Quota(), 1);
}

TEST_F(CgroupLimitsTest, AContainersMountShowsItsOwnGroupInVersion1) {
  WriteProcess("4:cpu:/docker/abc\n",
               "33 31 0:30 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n");
  WriteV1("sys/fs/cgroup/cpu", "75000", "50000");
  EXPECT_EQ(Quota(), 1.5);
}

TEST_F(CgroupLimitsTest, APathThatTheMountDoesNotShowMeansTheMountPoint) {
  Write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  for (const char* group : {"/not/there", "/docker/abcd", "/../beside", "/job (deleted)"}) {
    WriteProcess(std::string("0::") + group + "\n", kV2Mount);
    EXPECT_EQ(Quota(), 2) << group;
    WriteProcess(std::string("0::") + group + "\n",
                 "30 24 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
    EXPECT_EQ(Quota(), 2) << group;
  }
  WriteProcess("0::/\n", "30 24 0:26 /../.. /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
  EXPECT_EQ(Quota(), 2);
}

TEST_F(CgroupLimitsTest, AMountOfAnotherGroupDoesNotCountBesideOnesOwn) {
  WriteProcess("0::/job\n",
               "29 24 0:26 /other /mnt/other ro - cgroup2 cgroup rw\n" + std::string(kV2Mount));
  Write("sys/fs/cgroup/job/cpu.max", "200000 100000\n");
  Write("mnt/other/cpu.max", "10000 100000\n");
  EXPECT_EQ(Quota(), 2);
}

TEST_F(CgroupLimitsTest, PathsMayHoldBlanksAndColons) {
  WriteProcess("0::/a job: mine\n",
               "30 24 0:26 / /sys/fs/control\\040groups rw - cgroup2 cgroup2 rw\n");
  Write("sys/fs/control groups/a job: mine/cpu.max", "200000 100000\n");
  EXPECT_EQ(Quota(), 2);
}

TEST_F(CgroupLimitsTest, NoLimitAndNonsenseInVersion2MeanNone) {
  WriteProcess("0::/job\n", kV2Mount);
  for (const char* text : {"max 100000\n", "", "\n", "100000\n", "100000 0\n", "0 100000\n",
                           "-1 100000\n", "100000 100000 3\n", "1e5 100000\n", "100000us 100000\n",
                           "many few\n", "100000 -100000\n", "99999999999999999999999 100000\n"}) {
    Write("sys/fs/cgroup/job/cpu.max", text);
    EXPECT_EQ(Quota(), 0) << text;
  }
}

TEST_F(CgroupLimitsTest, NoLimitAndNonsenseInVersion1MeanNone) {
  WriteProcess("4:cpu:/\n", kV1Mount);
  const std::string top = "sys/fs/cgroup/cpu,cpuacct";
  for (const char* quota : {"-1", "0", "", "max", "1 2"}) {
    WriteV1(top, quota, "100000");
    EXPECT_EQ(Quota(), 0) << quota;
  }
  for (const char* period : {"-1", "0", "", "x"}) {
    WriteV1(top, "100000", period);
    EXPECT_EQ(Quota(), 0) << period;
  }
  std::filesystem::remove(folder_.File(top + "/cpu.cfs_period_us"));
  EXPECT_EQ(Quota(), 0);
}

TEST_F(CgroupLimitsTest, MalformedListsOfGroupsAndMountsMeanNone) {
  Write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  WriteProcess("0::/\n", kV2Mount);
  ASSERT_EQ(Quota(), 2);
  for (const char* groups : {"", "\n", "0:\n", "0\n", "::\n", "4:memory:/\n"}) {
    WriteProcess(groups, kV2Mount);
    EXPECT_EQ(Quota(), 0) << groups;
  }
  for (const char* mounts :
       {"\n", "30 24 0:26 / /sys/fs/cgroup\n", "30 24 - cgroup2 cgroup2 rw\n",
        "30 24 0:26 / /sys/fs/cgroup rw - cgroup2\n", "30 24 0:26 / /sys/fs/cgroup rw -\n",
        "30 24 0:26 / /sys/fs/cgroup rw cgroup2 cgroup2 rw\n"}) {
    WriteProcess("0::/\n", mounts);
    EXPECT_EQ(Quota(), 0) << mounts;
  }
}

constexpr char kV1MemoryMount[] =
    "34 31 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
constexpr uint64_t kMib = uint64_t{1} << 20;
constexpr uint64_t kGib = uint64_t{1} << 30;
// kWatermark is the low watermark of a machine with 1 GiB: min_free_kbytes of 4,096 KiB and a
// quarter more.
constexpr uint64_t kWatermark = 5 * kMib;

// CgroupMemoryTest simulates a system whose process is in the group /job, which has a limit of 1
// GiB.
class CgroupMemoryTest : public CgroupLimitsTest {
 protected:
  void WriteV2(uint64_t used, const std::string& stat) const {
    WriteProcess("0::/job\n", kV2Mount);
    Write("sys/fs/cgroup/job/memory.max", std::to_string(kGib) + "\n");
    Write("sys/fs/cgroup/job/memory.current", std::to_string(used) + "\n");
    Write("sys/fs/cgroup/job/memory.stat", stat);
  }
  void WriteV1Memory(uint64_t used, const std::string& stat) const {
    WriteProcess("4:memory:/job\n", kV1MemoryMount);
    Write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", std::to_string(kGib) + "\n");
    Write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", std::to_string(used) + "\n");
    Write("sys/fs/cgroup/memory/job/memory.stat", stat);
  }
  static std::string Line(const std::string& name, uint64_t bytes) {
    return name + " " + std::to_string(bytes) + "\n";
  }
  [[nodiscard]] std::optional<uint64_t> Left() const { return CgroupMemoryLeft(folder_.File("")); }
};

TEST_F(CgroupMemoryTest, NoLimitMeansNone) {
  WriteProcess("0::/job\n", kV2Mount);
  EXPECT_EQ(Left(), std::nullopt);
  Write("sys/fs/cgroup/job/memory.max", "max\n");
  Write("sys/fs/cgroup/job/memory.current", "700\n");
  EXPECT_EQ(Left(), std::nullopt);
}

TEST_F(CgroupMemoryTest, TheNearestLimitOfTheGroupsAboveCounts) {
  WriteV2(100 * kMib, Line("anon", 100 * kMib));
  EXPECT_EQ(Left(), 924 * kMib);
  Write("sys/fs/cgroup/memory.max", std::to_string(2 * kGib) + "\n");
  Write("sys/fs/cgroup/memory.current", std::to_string(1500 * kMib) + "\n");
  EXPECT_EQ(Left(), 548 * kMib);
  WriteV2(2 * kGib, "");
  EXPECT_EQ(Left(), 0u);
}

TEST_F(CgroupMemoryTest, FilePagesCountAsFreeWhetherTheyWereUsedLatelyOrNot) {
  constexpr uint64_t kUsed = 950'000'000, kFile = 900'000'000;
  constexpr uint64_t kLeft = kGib - kUsed + kFile - kWatermark;
  for (const std::string& stat :
       {Line("anon", kUsed - kFile) + Line("inactive_file", kFile) + Line("active_file", 0),
        Line("anon", kUsed - kFile) + Line("inactive_file", 0) + Line("active_file", kFile),
        Line("inactive_file", kFile / 3) + Line("active_file", kFile - kFile / 3)}) {
    WriteV2(kUsed, stat);
    EXPECT_EQ(Left(), kLeft) << stat;
  }
}

TEST_F(CgroupMemoryTest, FilePagesOfTheGroupsBelowCountInVersion1) {
  constexpr uint64_t kUsed = 950'000'000, kFile = 900'000'000;
  WriteV1Memory(kUsed, Line("active_file", 1) + Line("total_inactive_file", kFile / 2) +
                           Line("total_active_file", kFile / 2));
  EXPECT_EQ(Left(), kGib - kUsed + kFile - kWatermark);
}

TEST_F(CgroupMemoryTest, SharedMemoryAndLockedPagesAreTaken) {
  // `file` includes shmem and mlocked pages; the LRU lists of file pages include neither.
  WriteV2(900 * kMib, Line("file", 900 * kMib) + Line("shmem", 500 * kMib) +
                          Line("unevictable", 400 * kMib) + Line("inactive_file", 0) +
                          Line("active_file", 0));
  EXPECT_EQ(Left(), 124 * kMib);
}

TEST_F(CgroupMemoryTest, ReclaimableSlabCountsAsFree) {
  WriteV2(500 * kMib, Line("slab_reclaimable", 300 * kMib) + Line("slab_unreclaimable", kMib));
  EXPECT_EQ(Left(), 824 * kMib - kWatermark);
}

TEST_F(CgroupMemoryTest, HalfOfAFewFilePagesIsLeftToThem) {
  WriteV2(500 * kMib, Line("active_file", 4 * kMib));
  EXPECT_EQ(Left(), 526 * kMib);
}

}  // namespace
}  // namespace ebb
