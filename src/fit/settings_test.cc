#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ebb/fit.h"
#include "tests/support/numbers.h"
#include "tests/support/smollm2_shape.h"

namespace ebb {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

FitModel WeightsAlone() {
  return {.shape = kSmolLm2Shape, .feed_forward_dim = 1536, .weight_bytes = 100 * kMiB};
}

std::string Gentlest(uint64_t memory_mib, uint64_t disk_mib) {
  const Result<FitSetting> setting =
      GentlestSetting(WeightsAlone(), {.context = 8000},
                      {.memory_bytes = memory_mib * kMiB, .disk_bytes = disk_mib * kMiB});
  return setting.ok() ? setting->name : std::string(setting.status().message());
}

TEST(FitSettings, LessMemoryTakesAHarderSetting) {
  // The weights take 100 MiB, and the rows of 8,000 tokens 176 MiB in F16, 92 in int8, 64 in int4,
  // 44 in int3 and 31 in int2.
  EXPECT_EQ(Gentlest(300, 1000), "full");
  EXPECT_EQ(Gentlest(276, 1000), "--t1 none --t2 old:int8");
  EXPECT_EQ(Gentlest(180, 1000), "--t1 none --t2 old:int4");
  EXPECT_EQ(Gentlest(168, 1000), "--t1 none --t2 old:int3");
  EXPECT_THAT(Gentlest(140, 1000),
              testing::MatchesRegex("--t0 [0-9]+% --t1 file --t1-read select"));
}

TEST(FitSettings, PlacingRowsByScoresExcludesPlacingThemByPosition) {
  const auto gentlest = [](uint64_t memory_mib) {
    return GentlestSetting(WeightsAlone(), {.context = 8000, .places_by_position = false},
                           {.memory_bytes = memory_mib * kMiB, .disk_bytes = 1000 * kMiB})
        ->name;
  };
  EXPECT_EQ(gentlest(276), "--t0 90% --t1 file");
  EXPECT_EQ(gentlest(200), "--t0 40% --t1 file");
}

TEST(FitSettings, LessOfADeviceTakesLessT0ThenEvicts) {
  const FitRequest request = {.context = 32000, .on_device = true};
  const auto bytes = FitRequestInto(WeightsAlone(), request);
  ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
  EXPECT_EQ(bytes->DeviceMemory(), bytes->weights + bytes->compute + bytes->t0 + bytes->staging);
  EXPECT_EQ(bytes->Memory(), bytes->program + bytes->tables);
  const auto taken = [&](uint64_t device_bytes, uint64_t memory_bytes) {
    const auto setting = GentlestSetting(
        WeightsAlone(), request, {.memory_bytes = memory_bytes, .device_bytes = device_bytes});
    return setting.ok() ? setting->name : setting.status().ToString();
  };
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  EXPECT_EQ(taken(8 * kGiB, 8 * kGiB), "full");
  EXPECT_EQ(taken(kGiB / 2, 8 * kGiB).substr(0, 5), "--t0 ");
  EXPECT_NE(taken(kGiB / 2, 8 * kGiB).find("--t1 host"), std::string::npos);
  EXPECT_NE(taken(kGiB / 2, kGiB / 4).find("--t1 file"), std::string::npos);
  FitRequest compressed = request;
  compressed.tiers =
      TierSetting{.engine = {.t2_type = CompressedType::kInt8}, .shares = {.t2_share = 0.5}};
  const auto with_t2 = FitRequestInto(WeightsAlone(), compressed);
  ASSERT_TRUE(with_t2.ok()) << with_t2.status().ToString();
  EXPECT_GT(with_t2->t2, 100 * kMiB);
  EXPECT_GT(with_t2->staging_on_host, 0u);  // of T1 in a file
  EXPECT_EQ(with_t2->Memory(),
            with_t2->program + with_t2->tables + with_t2->t2 + with_t2->staging_on_host);
  EXPECT_LT(with_t2->DeviceMemory(), bytes->DeviceMemory() - 100 * kMiB);
  compressed.t2_on_device = true;
  const auto on_device = FitRequestInto(WeightsAlone(), compressed);
  ASSERT_TRUE(on_device.ok()) << on_device.status().ToString();
  EXPECT_EQ(on_device->Memory(), with_t2->Memory() - with_t2->t2);
  EXPECT_EQ(on_device->DeviceMemory(), with_t2->DeviceMemory() + on_device->t2);
  // Records in ggml's blocks take 8.5 bits an element, and the records of one layer at a time are
  // dequantized.
  compressed.t2_in_ggml_blocks = true;
  const auto in_blocks = FitRequestInto(WeightsAlone(), compressed);
  ASSERT_TRUE(in_blocks.ok()) << in_blocks.status().ToString();
  EXPECT_EQ(in_blocks->rows_read_compressed % 34, 0u);
  EXPECT_GT(in_blocks->rows_read_compressed, on_device->rows_read_compressed);
  EXPECT_GT(in_blocks->compute, on_device->compute + kMiB);
}

TEST(FitSettings, OldRowsAreCompressedOnADeviceThatHoldsT2) {
  for (const bool t2_on_device : {false, true}) {
    // Neither the host's memory nor the disk has room for rows of T1.
    const FitRequest request = {.context = 32000, .on_device = true, .t2_on_device = t2_on_device};
    const auto setting =
        GentlestSetting(WeightsAlone(), request,
                        {.memory_bytes = 20 * kMiB, .disk_bytes = 0, .device_bytes = 700 * kMiB});
    EXPECT_EQ(setting.ok(), t2_on_device);
    if (setting.ok()) {
      EXPECT_THAT(setting->name, StartsWith("--t1 none --t2 old:"));
    }
    const auto typical = TypicalSettings(64, true, t2_on_device);
    EXPECT_EQ(
        std::ranges::count_if(
            typical, [](const FitSetting& s) { return s.name.find("old:") != std::string::npos; }),
        t2_on_device ? 3 : 0);
  }
}

TEST(FitSettings, WithoutADiskRowsAreCompressed) {
  EXPECT_THAT(Gentlest(276, 0), StartsWith("--t1 none --t2 old:int8"));
  EXPECT_THAT(Gentlest(190, 0), HasSubstr("int4"));
  EXPECT_EQ(Gentlest(152, 0), "--t1 none --t2 old:int2");
  EXPECT_THAT(Gentlest(140, 0), HasSubstr("--evict"));
}

TEST(FitSettings, WhatFitsNowhereIsRefusedWithTheLeastMemory) {
  const std::string message = Gentlest(90, 1000);
  EXPECT_THAT(message, HasSubstr("fits 8000 tokens into 90 MiB"));
  EXPECT_THAT(message, HasSubstr("100 MiB of them for the weights and the program"));
  const auto refused = [](uint64_t memory_bytes) {
    return GentlestSetting(WeightsAlone(), {.context = 8000}, {.memory_bytes = memory_bytes})
        .status()
        .message();
  };
  EXPECT_THAT(refused(1024), HasSubstr("fits 8000 tokens into 1 KiB;"));
  EXPECT_THAT(refused(1000), HasSubstr("fits 8000 tokens into 1000 bytes;"));
}

TEST(FitSettings, WhatIsRefusedEverywhereSaysWhy) {
  const auto setting = GentlestSetting(WeightsAlone(), {.context = 8000, .kv_cap_bytes = 1},
                                       {.memory_bytes = 1 << 30});
  ASSERT_FALSE(setting.ok());
  EXPECT_THAT(setting.status().message(), HasSubstr("cap"));
  EXPECT_THAT(setting.status().message(), testing::Not(HasSubstr("MiB,")));
}

TEST(FitSettings, EverySettingIsWrittenAsItIsTyped) {
  for (const FitSetting& setting : SettingsByGentleness(64)) {
    if (!setting.tiers.has_value()) continue;
    TierSetting spec;
    const std::string& name = setting.name;
    const auto value = [&](const std::string& option) {
      const size_t at = name.find(option + " ");
      if (at == std::string::npos) return std::string();
      const size_t begin = at + option.size() + 1;
      return name.substr(begin, name.find(' ', begin) - begin);
    };
    const std::string t0 = value("--t0");
    EXPECT_TRUE(t0.empty() || ParseT0(t0, &spec).ok()) << name;
    EXPECT_TRUE(ParseT1(value("--t1"), &spec).ok()) << name;
    const std::string t2 = value("--t2"), evict = value("--evict");
    const std::string read = value("--t1-read");
    EXPECT_TRUE(read.empty() || ParseT1Read(read, &spec).ok()) << name;
    EXPECT_TRUE(t2.empty() || ParseT2(t2, &spec).ok()) << name;
    EXPECT_TRUE(evict.empty() || ParseEvict(evict, &spec).ok()) << name;
    EXPECT_EQ(spec, *setting.tiers) << name;
  }
}

TEST(FitSettings, TheLargestContextFitsAndTheNextDoesNot) {
  const FitLimits limits = {.memory_bytes = 200 * kMiB};
  const int context = LargestContext(WeightsAlone(), {}, limits);
  // 100 MiB less buffers and tables hold at most 50 extents: 6,400 pages, or 71 in each stream.
  EXPECT_EQ(context % 64, 0);
  EXPECT_GT(context, 60 * 64);
  EXPECT_LE(context, 71 * 64);
  const auto fits = [&](int tokens) {
    return CheckFit(*FitRequestInto(WeightsAlone(), {.context = tokens}), limits).ok();
  };
  EXPECT_TRUE(fits(context));
  EXPECT_FALSE(fits(context + 1));
  EXPECT_EQ(LargestContext(WeightsAlone(), {}, {.memory_bytes = 99 * kMiB}), 0);
}

TEST(FitSettings, RequestsShareTheWeights) {
  const int requests =
      MostRequests(WeightsAlone(), {.context = 1000}, {.memory_bytes = 300 * kMiB});
  // Each request takes 22.5 MiB of pages.
  EXPECT_EQ(requests, 8);
}

TEST(FitSettings, SpeedIsWhatBandwidthsAllow) {
  const FitBytes bytes = {.weights = 900'000'000, .rows_read_memory = 100'000'000};
  EXPECT_DOUBLE_EQ(TokensPerSecond(bytes, 1, {.memory_gb_s = 10}), 10);
  EXPECT_DOUBLE_EQ(TokensPerSecond(bytes, 4, {.memory_gb_s = 10}), 40);
  const FitBytes with_disk = {
      .weights = 900'000'000, .rows_read_memory = 100'000'000, .rows_read_disk = 100'000'000};
  EXPECT_DOUBLE_EQ(TokensPerSecond(with_disk, 1, {.memory_gb_s = 10, .disk_gb_s = 0.5}), 5);
  EXPECT_EQ(TokensPerSecond(with_disk, 1, {.memory_gb_s = 10}), 0) << "the disk is unknown";
}

TEST(FitSettings, SpeedIsPredictedFromAMeasuredStepAndTheRatesOfAttention) {
  const FitBytes bytes = {.rows_read_memory = 300'000'000,
                          .rows_read_compressed = 100'000'000,
                          .t2_type = CompressedType::kInt4};
  FitSpeeds speeds = {.memory_gb_s = 100,
                      .disk_gb_s = 1,
                      .step_seconds = 0.05,
                      .full_rows_gb_s = 10,
                      .compressed_rows_gb_s = {{CompressedType::kInt4, 5}}};
  // A step takes 50 ms, and reading full rows and compressed rows 20 ms each.
  EXPECT_DOUBLE_EQ(TokensPerSecond(bytes, 1, speeds), 1 / 0.09);
  EXPECT_DOUBLE_EQ(TokensPerSecond(bytes, 8, speeds), 8 / 0.09);
  FitBytes from_disk = bytes;
  from_disk.rows_read_disk = 200'000'000;
  EXPECT_DOUBLE_EQ(TokensPerSecond(from_disk, 1, speeds), 5);
  from_disk.rows_read_disk = 50'000'000;
  EXPECT_DOUBLE_EQ(TokensPerSecond(from_disk, 1, speeds), 1 / 0.09);
  speeds.compressed_rows_gb_s.clear();
  EXPECT_EQ(TokensPerSecond(bytes, 1, speeds), 0) << "the rate of int4 is unknown";
}

// Of 64 experts a token reads 8, an eighth of their bytes; two tokens read 15 of 64 on average.
TEST(FitSettings, AStepReadsTheExpertsThatItsTokensChoose) {
  FitModel model = WeightsAlone();
  model.expert_bytes = 64 * kMiB;
  model.expert_share = 8.0 / 64;
  EXPECT_EQ(WeightsRead(WeightsAlone(), 1), 100 * kMiB);
  EXPECT_EQ(WeightsRead(model, 1), (36 + 8) * kMiB);
  EXPECT_EQ(WeightsRead(model, 2), (36 + 15) * kMiB);
  const auto bytes = FitRequestInto(model, {.context = 1000});
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(bytes->weights - bytes->weights_unread, (36 + 8) * kMiB);
}

// Pieces of the embedding table that a prompt brought in count as memory, but later steps do not
// read them.
TEST(FitSettings, AStepReadsNoLookupTable) {
  FitModel model = WeightsAlone();
  model.lookup_bytes = 64 * kMiB;
  const auto bytes = FitRequestInto(model, {.context = 1000, .prompt_tokens = 512});
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(bytes->weights, (100 + 32) * kMiB);
  EXPECT_EQ(bytes->weights - bytes->weights_unread, 100 * kMiB);
}

TEST(FitSettings, WeightsBeyondMemoryAreReadFromTheFile) {
  const FitBytes bytes = {
      .weights = 1000 * kMiB, .program = 50 * kMiB, .t0 = 150 * kMiB, .weights_unread = 600 * kMiB};
  const auto mapped =
      FitMappedWeights(bytes, {.memory_bytes = 700 * kMiB}, 1, {.memory_gb_s = 10, .disk_gb_s = 1});
  ASSERT_TRUE(mapped.has_value());
  EXPECT_EQ(mapped->resident_bytes, 500 * kMiB);
  EXPECT_EQ(mapped->disk_bytes_per_step, 200 * kMiB);
  EXPECT_NEAR(mapped->tokens_per_s, 1e9 / (200 * kMiB), 1e-6);
  EXPECT_FALSE(FitMappedWeights(bytes, {.memory_bytes = 1200 * kMiB}, 1, {}).has_value());
  EXPECT_FALSE(FitMappedWeights(bytes, {.memory_bytes = 100 * kMiB}, 1, {}).has_value());
}

}  // namespace
}  // namespace ebb
