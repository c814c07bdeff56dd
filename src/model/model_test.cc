// Loading: what a good file says, and what becomes of broken ones; see bad_file_test.cc too.
#include "ebb/model.h"

#include <ggml-backend.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "src/model/library/library_model.h"
#include "src/model/loaded/loaded_model.h"
#include "tests/support/gguf_edit.h"
#include "tests/support/random_gguf.h"
#include "tests/support/small_model.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

using testing::HasSubstr;
using testing::Not;

class ModelTest : public testing::Test {
 protected:
  void Write(const RandomGgufOptions& options) {
    const Status status = WriteRandomGguf(options, path_);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  void Edit(const GgufChange& edit) {
    auto file = GgufEdit::Open(path_);
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    edit(*file);
    ASSERT_TRUE(file->Save(path_).ok());
  }
  std::string Bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void SetBytes(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }

  TempFolder folder_;
  std::string path_ = folder_.File("model.gguf");
};

TEST_F(ModelTest, TellsItsShapeFamilyAndType) {
  RandomGgufOptions options = SmallOptions();
  options.family = "qwen3";
  options.weight_type = "q8_0";
  Write(options);
  const auto model = Model::Load({.path = path_});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const ModelShape& shape = (*model)->shape();
  EXPECT_EQ(shape.num_layers, 2);
  EXPECT_EQ(shape.num_q_heads, 4);
  EXPECT_EQ(shape.num_kv_heads, 2);
  EXPECT_EQ(shape.head_dim, 16);
  EXPECT_EQ(shape.embed_dim, 64);
  EXPECT_EQ(shape.vocab_size, 260);
  EXPECT_EQ(shape.trained_context, 1024);
  EXPECT_EQ((*model)->family(), "qwen3");
  EXPECT_EQ((*model)->description(), "Random, qwen3, Q8_0");
}

TEST_F(ModelTest, LayersThatAreAlikeNeedNoLists) {
  RandomGgufOptions options = SmallOptions();
  options.kv_heads_by_layer = {2, 2};
  Write(options);
  const auto model = Model::Load({.path = path_});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ((*model)->shape().num_kv_heads, 2);
  EXPECT_TRUE((*model)->shape().kv_heads_by_layer.empty());
  EXPECT_TRUE((*model)->shape().windows.empty());
}

TEST_F(ModelTest, LayersMayDifferInTheirKvHeads) {
  RandomGgufOptions options = SmallOptions();
  options.family = "deci";
  options.kv_heads_by_layer = {1, 4};
  Write(options);
  const auto model = Model::Load({.path = path_});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ((*model)->shape().num_kv_heads, 4);
  EXPECT_EQ((*model)->shape().kv_heads_by_layer, options.kv_heads_by_layer);
}

TEST_F(ModelTest, EveryLayerButEachSixthHasTheWindowUnlessTheFileSaysOtherwise) {
  RandomGgufOptions options = SmallOptions();
  options.family = "gemma3";
  options.num_layers = 8;
  const auto windows = [&] {
    Write(options);
    const auto model = Model::Load({.path = path_});
    EXPECT_TRUE(model.ok()) << model.status().ToString();
    return model.ok() ? (*model)->shape().windows : std::vector<int>();
  };
  EXPECT_EQ(windows(), std::vector<int>());
  options.sliding_window = 32;
  EXPECT_EQ(windows(), (std::vector<int>{32, 32, 32, 32, 32, 0, 32, 32}));
  options.window_pattern = 3;
  EXPECT_EQ(windows(), (std::vector<int>{32, 32, 0, 32, 32, 0, 32, 32}));
  options.window_pattern = 0;
  options.window_layers = {false, true, false, false, true, true, false, false};
  EXPECT_EQ(windows(), (std::vector<int>{0, 32, 0, 0, 32, 32, 0, 0}));
}

TEST_F(ModelTest, WindowsThatNoModelHasAreRefused) {
  RandomGgufOptions options = SmallOptions();
  options.family = "gemma3";
  options.sliding_window = 32;
  const auto refusal = [&](const GgufChange& edit, StatusCode code) {
    Write(options);
    Edit(edit);
    const Status status = Model::Load({.path = path_}).status();
    EXPECT_EQ(status.code(), code) << status.ToString();
    return status.message();
  };
  const auto set_u32 = [](const char* key, uint32_t value) {
    return [=](GgufEdit& file) { gguf_set_val_u32(file.metadata(), key, value); };
  };
  const char* const pattern = "gemma3.attention.sliding_window_pattern";
  EXPECT_THAT(refusal(set_u32("gemma3.attention.sliding_window", 2000000000), StatusCode::kCorrupt),
              HasSubstr("sliding_window is 2000000000; expected 0 to"));
  EXPECT_THAT(refusal(
                  [&](GgufEdit& file) {
                    const uint8_t layers[] = {1};
                    gguf_set_arr_data(file.metadata(), pattern, GGUF_TYPE_BOOL, layers, 1);
                  },
                  StatusCode::kCorrupt),
              HasSubstr("sliding_window_pattern has 1 numbers for 2 layers"));
  EXPECT_THAT(refusal(
                  [&](GgufEdit& file) {
                    gguf_set_val_f32(file.metadata(), "gemma3.rope.freq_base_swa", 0);
                  },
                  StatusCode::kCorrupt),
              HasSubstr("rope.freq_base_swa is 0"));
}

TEST_F(ModelTest, WeightBytesAreThoseOfTheMatricesAndGrowWhenWidened) {
  RandomGgufOptions options = SmallOptions();
  options.weight_type = "q8_0";
  Write(options);
  // Per layer: q and output projection, k and v, three of the feed-forward; the embeddings.
  const uint64_t in_layers = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96);
  const uint64_t elements = in_layers + 260 * 64;
  const uint64_t slack = 8192;  // vectors and alignment
  const auto stored = Model::Load({.path = path_});
  const auto widened = Model::Load({.path = path_, .weights = WeightMode::kDequantize});
  ASSERT_TRUE(stored.ok() && widened.ok());
  EXPECT_GE((*stored)->weight_bytes(), elements * 34 / 32);
  // Its layout for AMX adds 4 bytes to a block.
  const ggml_tensor* matrix = (*stored)->loaded().library->multiplied_weights().front();
  const bool is_amx = std::string(ggml_backend_buffer_name(matrix->buffer)) == "AMX";
  EXPECT_LE((*stored)->weight_bytes(),
            elements * 34 / 32 + slack + (is_amx ? in_layers / 32 * 4 : 0));
  EXPECT_GE((*widened)->weight_bytes(), elements * 4);
  EXPECT_LE((*widened)->weight_bytes(), elements * 4 + slack);
  EXPECT_EQ((*widened)->description(), "Random, llama, F32");
}

TEST_F(ModelTest, TheFingerprintFollowsTheMetadata) {
  Write(SmallOptions());
  const auto first = Model::Load({.path = path_});
  const auto again = Model::Load({.path = path_});
  Edit([](GgufEdit& file) { gguf_set_val_f32(file.metadata(), "llama.rope.freq_base", 20000); });
  const auto other = Model::Load({.path = path_});
  ASSERT_TRUE(first.ok() && again.ok() && other.ok());
  EXPECT_EQ((*first)->fingerprint(), (*again)->fingerprint());
  EXPECT_NE((*first)->fingerprint(), (*other)->fingerprint());
}

TEST_F(ModelTest, TheFingerprintFollowsTheWeights) {
  RandomGgufOptions options = SmallOptions();
  Write(options);
  const auto first = Model::Load({.path = path_});
  ++options.seed;
  Write(options);
  const auto other = Model::Load({.path = path_});
  ASSERT_TRUE(first.ok() && other.ok());
  EXPECT_NE((*first)->fingerprint(), (*other)->fingerprint());
}

TEST_F(ModelTest, AsksNoTerminalToObeyTheNameInTheFile) {
  Write(SmallOptions());
  Edit([](GgufEdit& file) {
    gguf_set_val_str(file.metadata(), "general.name", ("\x1b[2J" + std::string(500, 'x')).c_str());
  });
  const auto model = Model::Load({.path = path_});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_THAT((*model)->description(), Not(HasSubstr("\x1b")));
  EXPECT_LT((*model)->description().size(), 150u);
}

TEST_F(ModelTest, ARopeFactorMakesTheContextLonger) {
  Write(SmallOptions());
  for (const RopeScaling scaling : {RopeScaling::kLinear, RopeScaling::kYarn}) {
    const auto model = Model::Load({.path = path_, .rope_scaling = scaling, .rope_factor = 4});
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    EXPECT_EQ((*model)->shape().trained_context, 4096);
  }
}

TEST_F(ModelTest, WithoutItsRopeScalingTheContextIsTheOriginalOne) {
  RandomGgufOptions options = SmallOptions();
  options.rope = RandomGgufOptions::Rope::kYarn;  // factor 4
  Write(options);
  const auto scaled = Model::Load({.path = path_});
  const auto plain = Model::Load({.path = path_, .rope_scaling = RopeScaling::kNone});
  ASSERT_TRUE(scaled.ok() && plain.ok());
  EXPECT_EQ((*scaled)->shape().trained_context, 1024);
  EXPECT_EQ((*plain)->shape().trained_context, 256);
}

TEST_F(ModelTest, RefusesARopeFactorThatDoesNotFitTheScaling) {
  Write(SmallOptions());
  const ModelOptions bad[] = {
      {.path = path_, .rope_scaling = RopeScaling::kLinear},
      {.path = path_, .rope_scaling = RopeScaling::kYarn, .rope_factor = 1},
      {.path = path_, .rope_scaling = RopeScaling::kYarn, .rope_factor = NAN},
      {.path = path_, .rope_factor = 2},
      {.path = path_, .rope_scaling = RopeScaling::kNone, .rope_factor = 2},
      {.path = path_, .rope_scaling = RopeScaling::kLinear, .rope_factor = 1e8},
  };
  for (const ModelOptions& options : bad) {
    const Status status = Model::Load(options).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("factor"));
  }
  EXPECT_THAT(Model::Load({.path = path_, .rope_factor = 2}).status().message(),
              HasSubstr("a rope factor (2) needs RoPE scaling linear or yarn"));
}

TEST_F(ModelTest, SaysWhyAFileCannotBeRead) {
  EXPECT_EQ(Model::Load({.path = path_}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Model::Load({.path = path_ + "/x"}).status().code(), StatusCode::kNotFound);
  const Status folder = Model::Load({.path = "/"}).status();
  EXPECT_EQ(folder.code(), StatusCode::kIo);
  EXPECT_THAT(folder.message(), HasSubstr("regular file"));
  SetBytes("");
  const Status empty = Model::Load({.path = path_}).status();
  EXPECT_EQ(empty.code(), StatusCode::kCorrupt);
  EXPECT_THAT(empty.message(), HasSubstr("is empty"));
  SetBytes("#!/bin/sh\necho this is no model, but long enough to look at\n");
  const Status script = Model::Load({.path = path_}).status();
  EXPECT_EQ(script.code(), StatusCode::kCorrupt);
  EXPECT_THAT(script.message(), HasSubstr("expected a GGUF file"));
  EXPECT_THAT(script.message(), HasSubstr(path_));
}

TEST_F(ModelTest, ATruncatedFileIsCorruptWhereverItEnds) {
  Write(SmallOptions());
  const std::string bytes = Bytes();
  for (size_t size = 1; size < bytes.size(); size += 1 + bytes.size() / 97) {
    SetBytes(bytes.substr(0, size));
    const Status status = Model::Load({.path = path_}).status();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << size << ": " << status.ToString();
  }
  SetBytes(bytes.substr(0, bytes.size() - 64));
  EXPECT_THAT(Model::Load({.path = path_}).status().message(), HasSubstr("truncated"));
}

TEST_F(ModelTest, FlippedBitsGiveAModelOrAnErrorNeverAnAbort) {
  RandomGgufOptions options = SmallOptions();
  options.tokenizer = RandomGgufOptions::Tokenizer::kMinimal;
  options.num_tokens = 16;
  Write(options);
  const std::string bytes = Bytes();
  const size_t header = bytes.find("output_norm.weight") + 64;
  std::mt19937 random(3);
  int errors = 0;
  for (int i = 0; i < 400; ++i) {
    std::string flipped = bytes;
    flipped[random() % header] ^= static_cast<char>(1 << (random() % 8));
    SetBytes(flipped);
    const auto model = Model::Load({.path = path_});
    if (!model.ok()) {
      ++errors;
      EXPECT_FALSE(model.status().message().empty());
    }
  }
  EXPECT_GT(errors, 100);
}

TEST_F(ModelTest, Qwen3WithoutItsHeadNormsIsCorrupt) {
  RandomGgufOptions options = SmallOptions();
  options.family = "qwen3";
  Write(options);
  Edit([](GgufEdit& file) { file.Remove("blk.1.attn_k_norm.weight"); });
  const Status status = Model::Load({.path = path_}).status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("blk.1.attn_k_norm.weight"));
}

TEST_F(ModelTest, ATokenizerThatAddsATokenItDoesNotHaveIsCorrupt) {
  RandomGgufOptions options = SmallOptions();
  options.tokenizer = RandomGgufOptions::Tokenizer::kMinimal;
  options.num_tokens = 10;
  Write(options);
  Edit([](GgufEdit& file) {
    gguf_remove_key(file.metadata(), "tokenizer.ggml.bos_token_id");
    gguf_set_val_bool(file.metadata(), "tokenizer.ggml.add_bos_token", true);
  });
  const Status status = Model::Load({.path = path_}).status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("beginning-of-sequence"));
}

TEST_F(ModelTest, TensorsThatAreNotAlignedForKernelsAreRefused) {
  Write(SmallOptions());
  Edit([](GgufEdit& file) { gguf_set_val_u32(file.metadata(), "general.alignment", 8); });
  const Status status = Model::Load({.path = path_}).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("align"));
}

TEST_F(ModelTest, SaysWhatItsMarksWereTrainedFor) {
  RandomGgufOptions options = SmallOptions();
  options.eviction_window = 8;
  Write(options);
  EXPECT_EQ((*Model::Load({.path = path_}))->trained_compression(), 0) << "the file does not say";
  static constexpr char kKey[] = "llama.attention.dms.cr";
  Edit([](GgufEdit& file) { gguf_set_val_f32(file.metadata(), kKey, 2.5f); });
  EXPECT_EQ((*Model::Load({.path = path_}))->trained_compression(), 2.5f);
  Edit([](GgufEdit& file) { gguf_set_val_u32(file.metadata(), kKey, 4); });
  EXPECT_EQ((*Model::Load({.path = path_}))->trained_compression(), 4);
}

}  // namespace
}  // namespace ebb
