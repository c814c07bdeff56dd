#include "ebb/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/numbers.h"
#include "tests/support/smollm2_shape.h"

namespace ebb {
namespace {

using testing::HasSubstr;

// A row of a kv head has 64 keys and 64 values of 2 bytes, 256 bytes in all; a page of 64 rows
// takes 16 KiB; there are 90 streams.
FitModel SmolLm2() {
  return {.shape = kSmolLm2Shape,
          .feed_forward_dim = 1536,
          .weight_bytes = 100 * kMiB,
          .program_bytes = 30 * kMiB};
}

FitBytes Fit(const FitRequest& request) {
  const Result<FitBytes> bytes = FitRequestInto(SmolLm2(), request);
  EXPECT_TRUE(bytes.ok()) << bytes.status().message();
  return bytes.ok() ? *bytes : FitBytes();
}

TEST(MemoryFit, ATokenOfSmolLm2Takes23040Bytes) {
  const FitBytes bytes = Fit({.context = 1});
  EXPECT_EQ(bytes.rows_read_memory, 23040u);
  // The 90 pages of 16 KiB fit into one extent, which holds 128.
  EXPECT_EQ(bytes.t0, 2 * kMiB);
}

TEST(MemoryFit, TheFullCacheIsWholePagesInWholeExtents) {
  // 2,000 tokens take 32 pages in each of 90 streams: 2,880 pages, or 22.5 extents of 128.
  const FitBytes bytes = Fit({.context = 2000});
  EXPECT_EQ(bytes.t0, 23 * 2 * kMiB);
  EXPECT_EQ(bytes.t1_memory + bytes.t1_disk + bytes.t2 + bytes.staging, 0u);
  EXPECT_EQ(bytes.rows_read_memory, 2000u * 23040);
  EXPECT_EQ(bytes.Memory(), 130 * kMiB + bytes.t0 + bytes.tables + bytes.compute);
}

TEST(MemoryFit, RefusesWhatItCannotCountAndSaysWhy) {
  const auto error = [](const FitModel& model, const FitRequest& request) {
    return FitRequestInto(model, request).status().ToString();
  };
  FitModel unknown = SmolLm2();
  unknown.shape.num_layers = 0;
  EXPECT_EQ(error(unknown, {.context = 1}),
            "invalid argument: the model's layers, heads and head size are not known");
  FitModel windows = SmolLm2();
  windows.shape.windows.assign(30, 512);
  EXPECT_EQ(error(windows, {.context = 1, .tiers = TierSetting()}),
            "unsupported: the memory of tiers cannot be computed for models with sliding windows, "
            "whose rows leave every tier");
  FitModel wide = SmolLm2();
  wide.shape.head_dim = 16384;
  EXPECT_EQ(error(wide, {.context = 1}),
            "invalid argument: a page of rows with a head size of 16384 is larger than 2 MiB");
  EXPECT_EQ(error(SmolLm2(), {.context = 0}),
            "invalid argument: expected at least 1 request, 1 token of context, 0 of the prompt "
            "and an interval of 1, found 1, 0, 0 and 64");
  EXPECT_EQ(
      error(SmolLm2(), {.context = 100, .kv_cap_bytes = kMiB, .tiers = TierSetting()}),
      "invalid argument: kv_cap_bytes: a cap on the cache cannot be combined with these tiers, "
      "which take caps on T0 and T1; a compressed cache without a T1 takes it");
  EXPECT_EQ(error(SmolLm2(), {.context = 100, .kv_cap_bytes = kMiB}),
            "T0 full: the cap on the cache is 1 MiB, and its rows take 4 MiB");
}

TEST(MemoryFit, LayersOfFewerKvHeadsTakeFewerPages) {
  FitModel model = SmolLm2();
  model.shape.kv_heads_by_layer.assign(30, 1);
  const auto bytes = FitRequestInto(model, {.context = 2000});
  ASSERT_TRUE(bytes.ok());
  // 32 pages in each of 30 streams are 960 pages, or 7.5 extents.
  EXPECT_EQ(bytes->t0, 8 * 2 * kMiB);
  EXPECT_EQ(bytes->rows_read_memory, 2000u * 30 * 256);
}

TEST(MemoryFit, LayersWithWindowsHoldTheirWindowsAndAPromptsLastChunk) {
  FitModel model = SmolLm2();
  model.shape.windows.assign(30, 512);
  for (int layer = 5; layer < 30; layer += 6) model.shape.windows[layer] = 0;
  const auto fit = [&](const FitRequest& request) {
    const auto bytes = FitRequestInto(model, request);
    EXPECT_TRUE(bytes.ok()) << bytes.status().message();
    return bytes.ok() ? *bytes : FitBytes();
  };
  // 5 layers hold 125 pages and 25 layers hold 9, in each of 3 kv heads: 2,550 pages.
  const FitBytes bytes = fit({.context = 8000});
  EXPECT_EQ(bytes.t0, 20 * 2 * kMiB);
  EXPECT_EQ(bytes.rows_read_memory, (5u * 8000 + 25 * 512) * 3 * 256);
  // While its last chunk is read, a prompt as long as that keeps the rows of 6 checkpoints, for
  // which 64 MiB have room, one of them at the beginning of the chunk: 25 layers of 57.
  EXPECT_EQ(fit({.context = 8000, .prompt_tokens = 8000}).t0, 49 * 2 * kMiB);
  const auto tiers = FitRequestInto(model, {.context = 8000, .tiers = TierSetting()});
  EXPECT_EQ(tiers.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(tiers.status().message(),
              HasSubstr("the memory of tiers cannot be computed for models with sliding windows"));
}

TEST(MemoryFit, GivenTokensBringInPiecesOfTheMappedTable) {
  FitModel model = SmolLm2();
  model.lookup_bytes = 16 * kMiB;
  const auto weights = [&](int prompt_tokens) {
    const auto bytes = FitRequestInto(model, {.context = 2000, .prompt_tokens = prompt_tokens});
    return bytes.ok() ? bytes->weights : 0;
  };
  EXPECT_EQ(weights(0), 100 * kMiB);
  EXPECT_EQ(weights(16), 101 * kMiB);
  EXPECT_EQ(weights(2000), 116 * kMiB);
}

TEST(MemoryFit, EachRequestHasItsRecurrentStateAndTheKeptCopies) {
  FitModel model = SmolLm2();
  const auto fit = [&](int requests, bool at_any_time = false) {
    const auto bytes = FitRequestInto(model, {.context = 600,
                                              .prompt_tokens = 600,
                                              .requests = requests,
                                              .prompts_at_any_time = at_any_time});
    EXPECT_TRUE(bytes.ok()) << bytes.status().message();
    return bytes.ok() ? *bytes : FitBytes();
  };
  EXPECT_EQ(fit(4).states, 0u);
  const uint64_t without = fit(4).Memory();
  model.state_bytes = kMiB;
  // The prompt of 600 tokens leaves checkpoints at its two chunks, and four more may lie between
  // messages. A chat (prompts at any time) leaves as many as 64 MiB hold, at most 16.
  EXPECT_EQ(fit(1).states, (1 + 6) * kMiB);
  EXPECT_EQ(fit(1, /*at_any_time=*/true).states, (1 + 16) * kMiB);
  // A step of several sequences copies their states side by side, one more state each.
  EXPECT_EQ(fit(4).states, 4 * (1 + 6 + 1) * kMiB);
  EXPECT_EQ(fit(4).Memory(), without + 4 * (1 + 6 + 1) * kMiB);
  model.state_bytes = 100 * kMiB;
  EXPECT_EQ(fit(1).states, 5 * 100 * kMiB);
}

TEST(MemoryFit, SeveralRequestsShareExtents) {
  // Two sequences of 1 token share extents: 2 * 90 pages take 2 extents.
  EXPECT_EQ(Fit({.context = 1, .requests = 2}).t0, 2 * 2 * kMiB);
  EXPECT_EQ(Fit({.context = 1, .requests = 7}).t0, 5 * 2 * kMiB);  // 630 pages
}

TEST(MemoryFit, APromptsBuffersGoBackBehindIt) {
  const auto memory = [](FitRequest request, bool at_any_time) {
    request.prompts_at_any_time = at_any_time;
    return Fit(request).Memory();
  };
  // The prompt's buffers hold 512 tokens of three layers of 1,536 floats, and more.
  const FitRequest generates = {.context = 8000, .prompt_tokens = 1000};
  EXPECT_GT(memory(generates, true), memory(generates, false) + 9 * kMiB);
  const FitRequest reads = {.context = 1000, .prompt_tokens = 1000};
  EXPECT_EQ(memory(reads, true), memory(reads, false));
  const FitRequest little = {.context = 2000, .prompt_tokens = 64};
  EXPECT_EQ(memory(little, true), memory(little, false));
  // The rows of a short generation take no more than the buffers that the prompt has freed.
  const FitRequest adds = {.context = 1064, .prompt_tokens = 1000};
  EXPECT_EQ(memory(adds, false), memory({.context = 1001, .prompt_tokens = 1000}, true));
  // A step of all 100 requests needs buffers as large as the prompt's, so these are not freed.
  const FitRequest many = {.context = 2000, .prompt_tokens = 1000, .requests = 100};
  EXPECT_EQ(memory(many, true), memory(many, false));
}

TEST(MemoryFit, GroupsThatChooseForThemselvesHaveTablesOfTheirOwn) {
  FitRequest request = {.context = 8000, .tiers = TierSetting{.shares = {.t0_share = 0.5}}};
  const FitBytes shared = Fit(request);
  request.granularity = Granularity::kHead;
  const FitBytes own = Fit(request);
  // Slots, positions, scores and mass of 90 groups take at least 16 bytes a row.
  EXPECT_GE(own.tables, uint64_t{90} * 8000 * 16);
  EXPECT_LT(shared.tables, own.tables / 20);
  request.tiers.reset();
  EXPECT_LE(Fit(request).tables, Fit({.context = 8000}).tables + 1024);
}

TEST(MemoryFit, EverySequenceEditsItsOwnFile) {
  FitRequest request = {
      .context = 8000,
      .tiers = TierSetting{.engine = {.t1 = T1Place::kFile}, .shares = {.t0_share = 0.5}}};
  const FitBytes one = Fit(request);
  request.requests = 5;
  EXPECT_EQ(Fit(request).staging, 5 * one.staging);
}

TEST(MemoryFit, ACapOnT0IsKeptAndT1TakesTheRest) {
  const FitBytes bytes =
      Fit({.context = 8000,
           .tiers = TierSetting{.engine = {.t0_cap_bytes = 16 * kMiB, .t1 = T1Place::kHost}}});
  EXPECT_LE(bytes.t0, 16 * kMiB);
  // 16 MiB are 1,024 pages, 34 a layer or 11 a stream. These hold 704 rows, of which 128 are in
  // reserve.
  EXPECT_GE(bytes.t1_memory, (8000u - 704) * 23040);
}

TEST(MemoryFit, CapsThatHoldTooLittleAreRefusedWithTheFigures) {
  const Result<FitBytes> bytes = FitRequestInto(
      SmolLm2(),
      {.context = 8000,
       .tiers = TierSetting{.engine = {.t0_cap_bytes = 16 * kMiB, .t1 = T1Place::kNone}}});
  ASSERT_FALSE(bytes.ok());
  EXPECT_EQ(bytes.status().code(), StatusCode::kT0Full);
  EXPECT_THAT(bytes.status().message(), HasSubstr("T0 holds 576 rows"));
}

TEST(MemoryFit, ACapThatHoldsNoSelectiveStepIsRefusedAsASessionRefusesIt) {
  // 384 rows take 6 pages in each of 90 streams, 540 pages, which fit into 5 extents.
  FitRequest request = {.context = 8000,
                        .tiers = TierSetting{.engine = {.t0_cap_bytes = 10 * kMiB},
                                             .shares = {.t1_read = T1Read::kSelect}}};
  EXPECT_TRUE(FitRequestInto(SmolLm2(), request).ok());
  request.requests = 2;
  request.tiers->engine.t0_cap_bytes = 20 * kMiB;
  EXPECT_TRUE(FitRequestInto(SmolLm2(), request).ok());
  --request.tiers->engine.t0_cap_bytes;
  const Status two = FitRequestInto(SmolLm2(), request).status();
  EXPECT_EQ(two.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(two.message(), HasSubstr("384 in all, so it needs 10485760"));
  EXPECT_EQ(MostRequests(SmolLm2(), request, {}), 1);
  request.tiers->engine.t1 = T1Place::kNone;
  EXPECT_NE(FitRequestInto(SmolLm2(), request).status().code(), StatusCode::kInvalidArgument);
}

TEST(MemoryFit, EagerAttentionOnADeviceHoldsTheLogitsOfAPromptsChunk) {
  FitRequest request = {.context = 4000, .prompt_tokens = 2000, .on_device = true};
  const uint64_t flash = Fit(request).compute;
  request.device_attention = DeviceAttention::kEager;
  // Eager attention holds the logits of 9 query heads for 512 tokens at once.
  EXPECT_GE(Fit(request).compute, flash + uint64_t{4} * 9 * 4000 * 512);
  request.prompt_tokens = 1;
  const uint64_t eager = Fit(request).compute;
  request.device_attention = DeviceAttention::kFlash;
  EXPECT_GE(eager, Fit(request).compute + uint64_t{4} * 9 * 4000);
}

TEST(MemoryFit, AGraphThatWasPlannedTakesWhatItsPlanSays) {
  FitModel model = SmolLm2();
  const auto compute = [&](const FitRequest& request) {
    const auto bytes = FitRequestInto(model, request);
    EXPECT_TRUE(bytes.ok()) << bytes.status().message();
    return bytes.ok() ? bytes->compute : 0;
  };
  const FitRequest reads = {.context = 1000, .prompt_tokens = 1000, .prompts_at_any_time = true};
  const FitRequest generates = {.context = 8000, .prompt_tokens = 1000};
  model.graph = FitGraph();
  const uint64_t read = compute(reads), generated = compute(generates);
  model.graph = {.bytes = 1000, .bytes_per_token = 100, .converted_bytes_per_token = 7};
  EXPECT_EQ(compute(reads), read + 1000 + 512 * 107);
  // The buffer in which products converted the prompt's activations is not freed.
  EXPECT_EQ(compute(generates), generated + 1000 + 107 + 512 * 7);
}

TEST(MemoryFit, AttentionOfAPromptTakesMemoryByThreadsAndBySlicesOfLongContexts) {
  FitModel model = SmolLm2();
  model.shape = {.num_layers = 2,
                 .num_q_heads = 16,
                 .num_kv_heads = 1,
                 .head_dim = 576,
                 .has_values = false,
                 .embed_dim = 512,
                 .vocab_size = 1000,
                 .trained_context = 8192};
  model.graph = FitGraph();
  const auto compute = [&](FitRequest request) {
    request.prompt_tokens = request.context;
    const auto bytes = FitRequestInto(model, request);
    EXPECT_TRUE(bytes.ok()) << bytes.status().message();
    return bytes.ok() ? bytes->compute : 0;
  };
  // kThread is the memory of one thread: queries, results, rows, logits and four numbers for each
  // of 16 heads of 16 tokens.
  constexpr uint64_t kThread = 4 * (2 * 576 * 256 + 64 * 576 + 64 * 256 + 4 * 256);
  EXPECT_EQ(compute({.context = 1000, .threads = 3}),
            compute({.context = 1000, .threads = 1}) + 2 * kThread);
  // The longer context takes 15 tiles with 2 slices each, and a page of rows with its partial
  // results more.
  constexpr uint64_t kSlices = 4 * uint64_t{15} * 2 * 256 * 578;
  constexpr uint64_t kPage = uint64_t{16} * 578 * 4;
  EXPECT_EQ(compute({.context = 2048 + 64}), compute({.context = 2047}) + kSlices + kPage);
}

TEST(MemoryFit, SizesThatNoModelHasAreRefused) {
  for (const FitModel& model : {FitModel(), FitModel{.shape = {.num_layers = 2}}}) {
    const Result<FitBytes> bytes = FitRequestInto(model, {.context = 10});
    ASSERT_FALSE(bytes.ok());
    EXPECT_EQ(bytes.status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(FitRequestInto(SmolLm2(), {.context = 0}).ok());
}

}  // namespace
}  // namespace ebb
