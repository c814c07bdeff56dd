#include "src/base/attention_layout.h"

#include <gtest/gtest.h>

namespace ebb {
namespace {

const ModelShape kMixed = {.num_layers = 3,
                           .num_q_heads = 4,
                           .num_kv_heads = 4,
                           .head_dim = 16,
                           .kv_heads_by_layer = {1, 4, 2}};

TEST(AttentionLayout, StreamsAreNumberedLayerByLayer) {
  const AttentionLayout layout(kMixed, Granularity::kHead);
  EXPECT_EQ(layout.num_streams(), 7);
  int stream = 0;
  for (int layer = 0; layer < 3; ++layer) {
    ASSERT_EQ(layout.NumKvHeads(layer), kMixed.kv_heads_by_layer[layer]);
    for (int head = 0; head < layout.NumKvHeads(layer); ++head, ++stream) {
      EXPECT_EQ(layout.StreamOf(layer, head), stream);
      EXPECT_EQ(layout.LayerOf(stream), layer);
      EXPECT_EQ(layout.KvHeadOf(stream), head);
    }
  }
}

TEST(AttentionLayout, GroupsHaveTheirStreamsAndQueryHeads) {
  struct Case {
    Granularity granularity;
    std::vector<int> first, query_heads, all_query_heads;
  };
  const Case cases[] = {
      {Granularity::kToken, {0, 7}, {4}, {12}},
      {Granularity::kLayer, {0, 1, 5, 7}, {4, 4, 4}, {4, 4, 4}},
      {Granularity::kHead, {0, 1, 2, 3, 4, 5, 6, 7}, {4, 1, 1, 1, 1, 2, 2}, {4, 1, 1, 1, 1, 2, 2}},
  };
  for (const Case& c : cases) {
    const AttentionLayout layout(kMixed, c.granularity);
    ASSERT_EQ(layout.num_groups(), static_cast<int>(c.query_heads.size()));
    ASSERT_EQ(layout.num_groups(), kMixed.NumGroups(c.granularity));
    for (int group = 0; group < layout.num_groups(); ++group) {
      EXPECT_EQ(layout.FirstStreamOf(group), c.first[group]);
      EXPECT_EQ(layout.NumStreamsOf(group), c.first[group + 1] - c.first[group]);
      EXPECT_EQ(layout.QueryHeadsOf(group), c.query_heads[group]);
      EXPECT_EQ(layout.AllQueryHeadsOf(group), c.all_query_heads[group]);
      for (int s = c.first[group]; s < c.first[group + 1]; ++s) EXPECT_EQ(layout.GroupOf(s), group);
    }
  }
}

TEST(AttentionLayout, LayersThatAreAlikeNeedNoList) {
  const ModelShape alike = {.num_layers = 2, .num_q_heads = 6, .num_kv_heads = 3};
  const AttentionLayout layout(alike, Granularity::kHead);
  EXPECT_EQ(layout.num_streams(), 6);
  EXPECT_EQ(layout.StreamOf(1, 2), 5);
  EXPECT_EQ(layout.QueryHeadsOf(5), 2);
}

}  // namespace
}  // namespace ebb
