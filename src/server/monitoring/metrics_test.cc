#include "src/server/monitoring/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

namespace ebb::server {
namespace {

using testing::HasSubstr;

TEST(MetricsText, EachFamilyIsDescribedOnceBeforeItsSamples) {
  Figures figures;
  figures.ended = {{"stop", 2}, {"length", 1}};
  std::istringstream lines(MetricsText(figures, 3, MetricsAlias::kVllm));
  std::set<std::string> families, samples;
  std::string family;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first, second, name;
    words >> first >> second >> name;
    if (second == "HELP") {
      EXPECT_TRUE(families.insert(name).second) << line;
    }
    if (second == "TYPE") family = name;
    if (first == "#") continue;
    EXPECT_TRUE(first.starts_with(family)) << line << " of " << family;
    EXPECT_TRUE(samples.insert(first).second) << line;
  }
  EXPECT_GT(families.size(), 20u);
}

TEST(MetricsText, TiersAndReasonsAreLabels) {
  Figures figures;
  figures.ended = {{"stop", 2}};
  figures.arenas[1].used_bytes = 4096;
  figures.rows[2] = 7;
  const std::string text = MetricsText(figures, 3, MetricsAlias::kNone);
  EXPECT_THAT(text, HasSubstr("ebb_requests_total{finish=\"stop\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("ebb_kv_bytes{tier=\"T1\"} 4096\n"));
  EXPECT_THAT(text, HasSubstr("ebb_kv_rows{tier=\"T2\"} 7\n"));
  EXPECT_THAT(text, HasSubstr("ebb_connections 3\n"));
}

TEST(MetricsText, BucketsCountAllBelowTheirBound) {
  Figures figures;
  for (const double seconds : {0.004, 0.005, 0.2, 1000.0}) figures.queue.Add(seconds);
  const std::string text = MetricsText(figures, 0, MetricsAlias::kNone);
  EXPECT_THAT(text, HasSubstr("ebb_queue_seconds_bucket{le=\"0.005\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("ebb_queue_seconds_bucket{le=\"0.25\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("ebb_queue_seconds_bucket{le=\"300\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("ebb_queue_seconds_bucket{le=\"+Inf\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("ebb_queue_seconds_sum 1000.209\n"));
  EXPECT_THAT(text, HasSubstr("ebb_queue_seconds_count 4\n"));
}

}  // namespace
}  // namespace ebb::server
