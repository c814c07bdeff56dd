#include "src/server/monitoring/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

namespace ebb::server {
namespace {

using testing::HasSubstr;

// Checks that each family is described once, before its samples.
void ExpectFamilies(const std::string& text) {
  std::istringstream lines(text);
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

TEST(MetricsText, EachFamilyIsDescribedOnceBeforeItsSamples) {
  for (const MetricsAlias alias : {MetricsAlias::kVllm, MetricsAlias::kLlamaCpp}) {
    Figures figures;
    figures.ended = {{"stop", 2}, {"length", 1}};
    ExpectFamilies(MetricsText(figures, 3, alias));
  }
}

TEST(MetricsText, LlamaServersNamesHaveItsFigures) {
  Figures figures;
  figures.prompt_tokens = 30;
  figures.prefix_hits = 4;
  figures.prompt_seconds = 2;
  figures.decoded_tokens = 9;
  figures.decode_seconds = 3;
  figures.steps = 4;
  figures.stepped_jobs = 6;
  figures.parked = figures.waiting = 1;
  figures.guesses["lookup"] = {.drafted = 30, .accepted = 25};
  figures.guesses["mtp"] = {.drafted = 10, .accepted = 5};
  const std::string text = MetricsText(figures, 0, MetricsAlias::kLlamaCpp);
  EXPECT_THAT(text, HasSubstr("# TYPE llamacpp:prompt_tokens_total counter\n"));
  EXPECT_THAT(text, HasSubstr("\nllamacpp:prompt_tokens_total 30\n"));
  EXPECT_THAT(text, HasSubstr("\nllamacpp:prompt_tokens_cached_total 4\n"));
  EXPECT_THAT(text, HasSubstr("\nllamacpp:prompt_tokens_seconds 15\n"));
  EXPECT_THAT(text, HasSubstr("\nllamacpp:predicted_tokens_seconds 3\n"));
  EXPECT_THAT(text, HasSubstr("\nllamacpp:n_busy_slots_per_decode 1.5\n"));
  EXPECT_THAT(text, HasSubstr("\nllamacpp:requests_deferred 2\n"));
  EXPECT_THAT(text, HasSubstr("\nllamacpp:spec_decode_num_draft_tokens_total 40\n"));
  EXPECT_THAT(text, HasSubstr("\nllamacpp:spec_decode_num_accepted_tokens_total 30\n"));
}

TEST(MetricsText, SourcesOfGuessesAreLabels) {
  Figures figures;
  EXPECT_THAT(MetricsText(figures, 0, MetricsAlias::kNone),
              HasSubstr("\nebb_drafted_tokens_total{source=\"lookup\"} 0\n"));
  figures.guesses["eagle3"] = {.drafted = 10, .accepted = 5};
  const std::string text = MetricsText(figures, 0, MetricsAlias::kNone);
  EXPECT_THAT(text, HasSubstr("\nebb_drafted_tokens_total{source=\"eagle3\"} 10\n"));
  EXPECT_THAT(text, HasSubstr("\nebb_accepted_tokens_total{source=\"eagle3\"} 5\n"));
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
