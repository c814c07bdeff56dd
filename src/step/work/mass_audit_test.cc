#include "src/step/work/mass_audit.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <tuple>

#include "src/attention/rows_for_test.h"

namespace ebb {
namespace {

ModelShape SmallShape() {
  ModelShape shape;
  shape.num_layers = 3;
  shape.num_q_heads = 4;
  shape.num_kv_heads = 2;
  shape.head_dim = 32;
  return shape;
}

TEST(MassAudit, VisitsEveryQueryHeadOfEveryLayerAtEvery17thPosition) {
  const ModelShape shape = SmallShape();
  const MassAudit audit(shape);
  std::set<std::tuple<int, int, int>> seen;
  int num_samples = 0;
  for (Position position = 1; position <= 17 * 36; ++position) {
    const auto sample = audit.At(position);
    EXPECT_EQ(sample.has_value(), position % 17 == 0) << position;
    if (!sample.has_value()) continue;
    ++num_samples;
    seen.emplace(sample->layer, sample->kv_head, sample->query_head);
    EXPECT_LT(sample->layer, 3);
    EXPECT_LT(sample->kv_head, 2);
    EXPECT_LT(sample->query_head, 2);
  }
  EXPECT_EQ(num_samples, 36);
  EXPECT_EQ(seen.size(), 12u);
}

// Lists the logits of four rows in a page, of the newest row and of a sink.
TEST(MassAudit, AddsTheShareOfTheRowsThatAreNotChosen) {
  const ModelShape shape = SmallShape();
  AttentionShape attention = {.num_q_heads = 4, .num_kv_heads = 2, .scale = 0.5F};
  attention.format = {.type = RowType::kF32, .head_dim = 32};
  alignas(64) std::array<float, size_t{2}* kRowsPerPage* 32> page = {};
  const std::array<float, 5> logits = {1, 2, -1, 3, 0.5F};
  for (size_t row = 0; row < 4; ++row) page[row * 32 + 2] = logits[row];
  const std::array<float, 32> q = {0, 0, 2}, newest = {0, 0, logits[4]};
  const std::array<const std::byte*, 1> pages = {reinterpret_cast<const std::byte*>(page.data())};
  std::vector<Slot> slots;
  for (uint32_t row = 0; row < 5; ++row) slots.emplace_back(0, row);
  const std::array<RowRange, 2> chosen = {{{0, 1}, {2, 3}}};
  MassAudit::Input input = {.kernel = &CpuAttention(),
                            .shape = attention,
                            .rows = {.pages = pages.data(), .slots = slots},
                            .chosen = chosen,
                            .q = q.data(),
                            .newest_key = newest.data()};
  const auto mass = [](float logit) { return std::exp(double{logit}); };
  double all = 0;
  for (const float logit : logits) all += mass(logit);
  const double unread = mass(2) + mass(3);
  MassAudit audit(shape);
  EXPECT_EQ(audit.UnreadMass(), 0);
  audit.Add(input);
  EXPECT_NEAR(audit.UnreadMass(), unread / all, 1e-12);
  input.sink = 4;
  audit.Add(input);
  EXPECT_NEAR(audit.UnreadMass(), (unread / all + unread / (all + mass(4))) / 2, 1e-12);
  EXPECT_EQ(audit.num_samples(), 2);

  MassAudit capped(shape);
  input.sink = kNoSink;
  input.shape.soft_cap = 1.5F;
  capped.Add(input);
  const auto capped_mass = [](double logit) { return std::exp(1.5 * std::tanh(logit / 1.5)); };
  all = 0;
  for (const float logit : logits) all += capped_mass(logit);
  EXPECT_NEAR(capped.UnreadMass(), (capped_mass(2) + capped_mass(3)) / all, 1e-9);
}

}  // namespace
}  // namespace ebb
