#include "tests/engine/engine_fixture.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>

#include "tests/support/device/sim_backend.h"

namespace ebb {
namespace {

// What one test asks of the simulated device is nothing to the next one, also where it failed.
class WholeAgain : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo& /*test*/) override {
    SetSimBackendFaults({});
    SetSimBackendLacks(GGML_OP_NONE);
  }
};
const bool kListens = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new WholeAgain);
  return true;
}();

// Skips the tests of tagged files before they begin.
class SkipsFiles : public testing::EmptyTestEventListener {
 public:
  void Add(const char* file, const char* why) { files_.emplace(file, why); }
  void OnTestStart(const testing::TestInfo& test) override {
    const auto tagged = files_.find(test.file());
    if (tagged != files_.end()) GTEST_SKIP() << "on the CPU only: " << tagged->second;
  }

 private:
  std::map<std::string, std::string> files_;
};

}  // namespace

bool SkipFileOverDevices(const char* file, const char* why) {
  if (OtherDevice() == nullptr) return false;
  static SkipsFiles* const kSkips = [] {
    auto* skips = new SkipsFiles;  // googletest deletes it
    testing::UnitTest::GetInstance()->listeners().Append(skips);
    return skips;
  }();
  kSkips->Add(file, why);
  return true;
}

double Spread(const std::vector<float>& values) {
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / values.size();
  double sum = 0;
  for (const float value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / values.size());
}

double LargestDifference(const std::vector<float>& expected, const std::vector<float>& actual) {
  EXPECT_EQ(expected.size(), actual.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(expected.size(), actual.size()); ++i) {
    const double difference = std::fabs(double{expected[i]} - actual[i]);
    if (std::isnan(difference)) return difference;
    largest = std::max(largest, difference);
  }
  return largest / Spread(expected);
}

}  // namespace ebb
