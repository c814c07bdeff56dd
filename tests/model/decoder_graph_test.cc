// What a decoder graph can be asked for beside all logits.
#include "src/model/loaded/decoder_graph.h"

#include <ggml.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "ebb/model.h"
#include "src/model/loaded/loaded_model.h"
#include "tests/model/graph_runner.h"
#include "tests/support/model_variants.h"
#include "tests/support/random_gguf.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

class DecoderGraphTest : public testing::Test {
 protected:
  void Load(const RandomGgufOptions& options) {
    options_ = options;
    const std::string path = folder_.File("model.gguf");
    ASSERT_TRUE(WriteRandomGguf(options_, path).ok());
    auto model = Model::Load({.path = path});
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = *model;
    tokens_ = RandomTokens(options_, 12, 5);
  }
  [[nodiscard]] std::vector<float> Row(const std::vector<float>& rows, size_t row) const {
    const size_t width = options_.num_tokens;
    return {rows.begin() + row * width, rows.begin() + (row + 1) * width};
  }
  // Products over another number of columns may sum in another order.
  static void ExpectNear(const std::vector<float>& a, const std::vector<float>& b) {
    ASSERT_EQ(a.size(), b.size());
    ASSERT_FALSE(a.empty());
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-4) << i;
  }

  RandomGgufOptions options_;
  TempFolder folder_;
  std::shared_ptr<const Model> model_;
  std::vector<Token> tokens_;
};

TEST_F(DecoderGraphTest, OutputRowsAreThoseRowsOfAllLogits) {
  Load({});
  const GraphRun all = RunGraph(*model_, tokens_);
  const GraphRun some = RunGraph(*model_, tokens_, {.output_rows = {3, 11}});
  ASSERT_EQ(some.logits.size(), 2u * options_.num_tokens);
  ExpectNear(Row(some.logits, 0), Row(all.logits, 3));
  ExpectNear(Row(some.logits, 1), Row(all.logits, 11));
}

TEST_F(DecoderGraphTest, WithoutOutputsEveryLayerStillMakesItsKeys) {
  Load({});
  const GraphRun all = RunGraph(*model_, tokens_);
  const GraphRun none = RunGraph(*model_, tokens_, {.outputs = GraphRunOptions::Outputs::kNone});
  EXPECT_TRUE(none.logits.empty());
  ASSERT_EQ(none.keys.size(), 2u);
  for (size_t layer = 0; layer < 2; ++layer) ExpectNear(none.keys[layer], all.keys[layer]);
  EXPECT_LT(none.num_nodes, all.num_nodes);
}

// In every layout that ggml has for the weights of this processor.
TEST_F(DecoderGraphTest, TokensApartHaveTheBitsOfTheirOwn) {
  for (const std::string type : {"f32", "f16", "q4_0", "q4_1", "q8_0", "q4_K", "q6_K"}) {
    RandomGgufOptions options;
    options.weight_type = type;
    if (type.ends_with("_K")) options.embed_dim = 256;  // a super-block
    Load(options);
    const GraphRun together = RunGraph(*model_, tokens_, {.one_token_at_a_time = true});
    ASSERT_EQ(together.logits.size(), tokens_.size() * options_.num_tokens) << type;
    const std::vector<float>& keys = together.keys_before_rope.front();
    const size_t width = keys.size() / tokens_.size();
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const GraphRun alone = RunGraph(*model_, {&tokens_[i], 1});
      const std::vector<float> of_token(keys.begin() + i * width, keys.begin() + (i + 1) * width);
      EXPECT_EQ(of_token, alone.keys_before_rope.front()) << type << ", token " << i;
    }
    // The first token attends to itself alone; all logits come through every product.
    EXPECT_EQ(Row(together.logits, 0), RunGraph(*model_, {tokens_.data(), 1}).logits) << type;
    const GraphRun usual = RunGraph(*model_, tokens_);
    const double norm = std::sqrt(
        std::inner_product(usual.logits.begin(), usual.logits.end(), usual.logits.begin(), 0.0));
    double distance = 0;
    for (size_t i = 0; i < usual.logits.size(); ++i) {
      distance += std::pow(together.logits[i] - usual.logits[i], 2);
    }
    EXPECT_LT(std::sqrt(distance), 0.05 * norm) << type;
  }
}

// In many layers, whose values are of a type of their own and so not joined with the rest.
TEST_F(DecoderGraphTest, ManyTokensApartFindRoomForTheirNodes) {
  Load({.num_layers = 40,
        .embed_dim = 64,
        .head_dim = 16,
        .feed_forward_dim = 64,
        .weight_type = "q4_0",
        .value_type = "q8_0"});
  tokens_ = RandomTokens(options_, 64, 5);
  const GraphRun apart = RunGraph(*model_, tokens_, {.one_token_at_a_time = true});
  EXPECT_EQ(apart.logits.size(), tokens_.size() * options_.num_tokens);
}

TEST_F(DecoderGraphTest, WatchingHiddenStatesChangesNoLogit) {
  Load({.num_layers = 3});
  const std::vector<int> last = {11};
  const GraphRun plain = RunGraph(*model_, tokens_, {.output_rows = last});
  const GraphRun watched =
      RunGraph(*model_, tokens_, {.output_rows = last, .hidden_layers = {2, 0}});
  ExpectNear(watched.logits, plain.logits);
  ASSERT_EQ(watched.hidden.size(), 2u);
  for (const auto& hidden : watched.hidden) {
    EXPECT_EQ(hidden.size(), tokens_.size() * options_.embed_dim);
  }
  EXPECT_NE(watched.hidden[0], watched.hidden[1]);
  const GraphRun first = RunGraph(*model_, tokens_, {.output_rows = last, .hidden_layers = {0}});
  ExpectNear(first.hidden[0], watched.hidden[1]);
}

TEST_F(DecoderGraphTest, HiddenStatesOfTheLastLayerNeedNoOutputs) {
  Load({});
  const GraphRun all = RunGraph(*model_, tokens_, {.hidden_layers = {1}});
  const GraphRun none = RunGraph(
      *model_, tokens_, {.outputs = GraphRunOptions::Outputs::kNone, .hidden_layers = {1}});
  ASSERT_EQ(none.hidden.size(), 1u);
  ExpectNear(none.hidden[0], all.hidden[0]);
}

TEST_F(DecoderGraphTest, KeysBeforeRopeDifferFromKeysByARotationAlone) {
  for (const char* family : {"llama", "qwen3"}) {
    RandomGgufOptions options;
    options.family = family;
    Load(options);
    const GraphRun run = RunGraph(*model_, tokens_);
    const size_t row = size_t{1} * options_.num_kv_heads * options_.head_dim;
    const std::vector<float>& keys = run.keys[1];
    const std::vector<float>& before = run.keys_before_rope[1];
    ASSERT_EQ(keys.size(), tokens_.size() * row);
    ASSERT_EQ(before.size(), keys.size());
    for (size_t i = 0; i < row; ++i) EXPECT_EQ(before[i], keys[i]) << "position 0, " << family;
    for (size_t token = 1; token < tokens_.size(); ++token) {
      double square_before = 0, square_after = 0, difference = 0;
      for (size_t i = token * row; i < (token + 1) * row; ++i) {
        square_before += before[i] * before[i];
        square_after += keys[i] * keys[i];
        difference += std::abs(before[i] - keys[i]);
      }
      EXPECT_NEAR(square_after, square_before, 1e-4 * square_before);
      EXPECT_GT(difference, 0.1);
    }
  }
}

// In the first layer, whose input is the same, against a model with the same weights that marks
// nothing: of each group the first query head's last channel is shown as it is before RoPE, takes
// no part in it, and is 0 behind it.
TEST_F(DecoderGraphTest, TheChannelOfTheEvictionLogitIsShownAndTakenOut) {
  for (ModelVariant variant : ModelVariants()) {
    if (variant.options.rope != RandomGgufOptions::Rope::kNone) continue;
    SCOPED_TRACE(variant.name);
    Load(variant.options);
    const GraphRun plain = RunGraph(*model_, tokens_);
    variant.options.eviction_window = 64;
    Load(variant.options);
    const GraphRun marking = RunGraph(*model_, tokens_, {.eviction_logits = true});
    ASSERT_EQ(marking.eviction_channels.size(), size_t(options_.num_layers));
    ExpectNear(marking.keys[0], plain.keys[0]);
    const ModelShape& shape = model_->shape();
    const int dim = options_.head_dim, heads = options_.num_q_heads;
    const int kv_heads = shape.NumKvHeads(0), heads_per_group = heads / kv_heads;
    const bool turns_neighbours = options_.family == "llama" || options_.family == "deci";
    const int partner = turns_neighbours ? dim - 2 : dim / 2 - 1;
    const double base = shape.Window(0) > 0 ? 10000 : options_.rope_base;
    const double frequency = std::pow(base, -(dim - 2.0) / dim);
    // The builder of gemma3 scales queries behind RoPE.
    const double scale = options_.family == "gemma3" ? 1 / std::sqrt(dim) : 1;
    for (size_t token = 0; token < tokens_.size(); ++token) {
      const double sine = std::sin(token * frequency), cosine = std::cos(token * frequency);
      for (int head = 0; head < heads; ++head) {
        const size_t at = (token * heads + head) * dim;
        std::vector<float> expected(plain.queries[0].begin() + at,
                                    plain.queries[0].begin() + at + dim);
        if (head % heads_per_group == 0) {
          const double turned = expected[partner], logit = expected[dim - 1];
          EXPECT_NEAR(marking.eviction_channels[0][token * kv_heads + head / heads_per_group],
                      (logit * cosine - turned * sine) / scale, 1e-4);
          expected[partner] = static_cast<float>(cosine * (turned * cosine + logit * sine));
          expected[dim - 1] = 0;
          EXPECT_EQ(marking.queries[0][at + dim - 1], 0);
        }
        ExpectNear({marking.queries[0].begin() + at, marking.queries[0].begin() + at + dim},
                   expected);
      }
    }
  }
}

// What comes into the layer, behind the norm of its own, times the matrix: computed here from the
// output of the layer before, in double precision.
TEST_F(DecoderGraphTest, AnAdapterReadsWhatComesIntoTheLayer) {
  for (ModelVariant variant : ModelVariants()) {
    SCOPED_TRACE(variant.name);
    const RandomGgufOptions plain_options = variant.options;
    variant.options.eviction_window = 64;
    variant.options.marks = RandomGgufOptions::Marks::kAdapter;
    Load(variant.options);
    const GraphRun run =
        RunGraph(*model_, tokens_, {.hidden_layers = {0, 1}, .eviction_logits = true});
    ASSERT_EQ(run.eviction_channels.size(), size_t(options_.num_layers));
    const size_t width = options_.embed_dim;
    for (int layer = 1; layer < 3; ++layer) {
      const size_t kv_heads = model_->shape().NumKvHeads(layer);
      const LayerWeights& weights = model_->loaded().layers[layer];
      const auto* norm = static_cast<const float*>(weights.alpha_norm->data);
      const auto* matrix = static_cast<const float*>(weights.alpha->data);
      for (size_t token = 0; token < tokens_.size(); ++token) {
        const float* x = run.hidden[layer - 1].data() + token * width;
        const double mean_square = std::inner_product(x, x + width, x, 0.0) / width;
        const double shrink = 1 / std::sqrt(mean_square + 1e-5);
        for (size_t head = 0; head < kv_heads; ++head) {
          double expected = 0;
          for (size_t i = 0; i < width; ++i) {
            expected += x[i] * shrink * norm[i] * matrix[head * width + i];
          }
          EXPECT_NEAR(run.eviction_channels[layer][token * kv_heads + head], expected, 1e-4);
        }
      }
    }
    // No channel of the queries is taken out, and nothing else changes by a bit.
    Load(plain_options);
    const GraphRun plain = RunGraph(*model_, tokens_, {.hidden_layers = {0, 1}});
    EXPECT_EQ(run.queries, plain.queries);
    EXPECT_EQ(run.keys, plain.keys);
    EXPECT_EQ(run.logits, plain.logits);
  }
}

TEST_F(DecoderGraphTest, AnAdapterTakesTokensApartToo) {
  RandomGgufOptions options;
  options.eviction_window = 64;
  options.marks = RandomGgufOptions::Marks::kAdapter;
  Load(options);
  const GraphRun apart =
      RunGraph(*model_, tokens_, {.eviction_logits = true, .one_token_at_a_time = true});
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const GraphRun alone = RunGraph(*model_, {&tokens_[i], 1}, {.eviction_logits = true});
    for (size_t head = 0; head < 2; ++head) {
      EXPECT_EQ(apart.eviction_channels[0][2 * i + head], alone.eviction_channels[0][head]);
    }
  }
}

TEST_F(DecoderGraphTest, AnAdapterThatNobodyAsksTakesNoNode) {
  Load({});
  const int plain = RunGraph(*model_, tokens_).num_nodes;
  Load({.eviction_window = 64, .marks = RandomGgufOptions::Marks::kAdapter});
  EXPECT_EQ(RunGraph(*model_, tokens_).num_nodes, plain);
  EXPECT_EQ(RunGraph(*model_, tokens_, {.eviction_logits = true}).num_nodes - plain, 2 * 3)
      << "a layer adds a norm, its factors and a product";
}

TEST_F(DecoderGraphTest, EvictionLogitsThatNobodyAsksForTakeNoNode) {
  Load({.eviction_window = 64});
  const GraphRun silent = RunGraph(*model_, tokens_);
  const GraphRun asked = RunGraph(*model_, tokens_, {.eviction_logits = true});
  EXPECT_TRUE(silent.eviction_channels.empty());
  EXPECT_EQ(asked.num_nodes - silent.num_nodes, 2) << "one a layer";
  ExpectNear(asked.logits, silent.logits);
  Load({});
  EXPECT_EQ(silent.num_nodes - RunGraph(*model_, tokens_).num_nodes, 4)
      << "the channel is taken out before and behind RoPE";
}

}  // namespace
}  // namespace ebb
