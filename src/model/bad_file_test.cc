// Files that say what no model may: each is refused with its reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "ebb/model.h"
#include "tests/support/gguf_edit.h"
#include "tests/support/random_gguf.h"
#include "tests/support/small_model.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

using testing::HasSubstr;

struct BadFile {
  std::string name;
  GgufChange edit;
  StatusCode code;
  std::string message;  // that the error contains
};
std::ostream& operator<<(std::ostream& out, const BadFile& file) { return out << file.name; }

GgufChange SetF32(const std::string& key, float value) {
  return [=](GgufEdit& file) { gguf_set_val_f32(file.metadata(), key.c_str(), value); };
}
GgufChange SetStrings(const std::string& key, std::vector<const char*> values) {
  return [=](GgufEdit& file) mutable {
    gguf_set_arr_str(file.metadata(), key.c_str(), values.data(), values.size());
  };
}
GgufChange SetNumbers(const std::string& key, std::vector<int32_t> values) {
  return [=](GgufEdit& file) {
    gguf_set_arr_data(file.metadata(), key.c_str(), GGUF_TYPE_INT32, values.data(), values.size());
  };
}

// Of a model that marks rows.
GgufChange Marks(const GgufChange& edit) {
  return [=](GgufEdit& file) {
    SetString("llama.attention.dms.layout", "query_last_channel")(file);
    edit(file);
  };
}
// A model that does so by tensors of its own.
GgufChange MarksByTensors(const GgufChange& edit) {
  return [=](GgufEdit& file) {
    SetString("llama.attention.dms.layout", "adapter")(file);
    for (const std::string layer : {"blk.0.", "blk.1."}) {
      file.Add(layer + "attn_dms_alpha_norm.weight", GGML_TYPE_F32, 64, 1);
      file.Add(layer + "attn_dms_alpha.weight", GGML_TYPE_F32, 64, 2);
    }
    edit(file);
  };
}

std::vector<BadFile> BadMetadata() {
  const auto corrupt = StatusCode::kCorrupt;
  const auto unsupported = StatusCode::kUnsupported;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  return {
      {"family", SetString("general.architecture", "marabou"), unsupported,
       "model family \"marabou\" is not supported"},
      {"another_family", SetString("general.architecture", "mamba"), corrupt,
       "mamba.context_length"},
      {"no_family", RemoveKey("general.architecture"), corrupt, "lacks general.architecture"},
      {"family_no_string", SetU32("general.architecture", 1), corrupt, "type u32, expected str"},
      {"name_no_string", SetU32("general.name", 1), corrupt, "general.name is of type u32"},
      {"split",
       [](GgufEdit& file) {
         gguf_set_val_u16(file.metadata(), "split.count", 3);
         gguf_set_val_u16(file.metadata(), "split.no", 0);
       },
       unsupported, "a name that ends in -00001-of-00003.gguf"},
      // The later parts have no other metadata.
      {"split_later_part",
       [](GgufEdit& file) {
         gguf_set_val_u16(file.metadata(), "split.count", 3);
         gguf_set_val_u16(file.metadata(), "split.no", 1);
         gguf_remove_key(file.metadata(), "general.architecture");
       },
       unsupported, "found part 2 of 3; give the file whose name ends in -00001-of-00003.gguf"},
      {"no_layers_key", RemoveKey("llama.block_count"), corrupt, "llama.block_count"},
      {"no_width", RemoveKey("llama.embedding_length"), corrupt, "embedding_length"},
      {"no_ffn", RemoveKey("llama.feed_forward_length"), corrupt,
       "'blk.0.ffn_gate.weight' has wrong shape"},
      {"no_context", RemoveKey("llama.context_length"), corrupt, "context_length"},
      {"no_heads_key", RemoveKey("llama.attention.head_count"), corrupt,
       "'blk.0.attn_q.weight' has wrong shape"},
      {"no_epsilon", RemoveKey("llama.attention.layer_norm_rms_epsilon"), corrupt, "epsilon"},
      {"layers_no_integer", SetString("llama.block_count", "2"), corrupt, "expected u32"},
      {"layers_an_array", SetStrings("llama.block_count", {"2", "2"}), corrupt, "wrong type arr"},
      {"zero_layers", SetU32("llama.block_count", 0), corrupt, "block_count is 0"},
      {"many_layers", SetU32("llama.block_count", 4000000000u), corrupt, "expected 1 to"},
      {"layers_without_tensors", SetU32("llama.block_count", 3), corrupt,
       "'blk.2.attn_norm.weight' not found"},
      {"zero_width", SetU32("llama.embedding_length", 0), corrupt, "embedding_length is 0"},
      {"huge_width", SetU32("llama.embedding_length", 1u << 31), corrupt, "expected 1 to"},
      {"zero_heads", SetU32("llama.attention.head_count", 0), corrupt, "head_count is 0"},
      {"many_heads", SetU32("llama.attention.head_count", 1u << 30), corrupt, "expected 1 to"},
      {"zero_kv_heads", SetU32("llama.attention.head_count_kv", 0), corrupt, "head_count_kv is 0"},
      {"kv_heads_do_not_divide", SetU32("llama.attention.head_count_kv", 3), corrupt,
       "'blk.0.attn_k.weight' has wrong shape"},
      {"more_kv_heads", SetU32("llama.attention.head_count_kv", 8), corrupt,
       "'blk.0.attn_k.weight' has wrong shape"},
      {"kv_heads_of_too_few_layers", SetNumbers("llama.attention.head_count_kv", {2}), corrupt,
       "head_count_kv has wrong array length; expected 2, got 1"},
      {"a_layer_without_attention", SetNumbers("llama.attention.head_count_kv", {2, 0}), corrupt,
       "libllama cannot run this file"},
      {"a_layer_of_many_kv_heads", SetNumbers("llama.attention.head_count_kv", {2, 5000}), corrupt,
       "libllama cannot run this file"},
      {"a_layer_of_negative_kv_heads", SetNumbers("llama.attention.head_count_kv", {2, -1}),
       corrupt, "libllama cannot run this file"},
      {"a_layers_kv_heads_do_not_divide", SetNumbers("llama.attention.head_count_kv", {2, 3}),
       corrupt, "libllama cannot run this file"},
      {"kv_heads_in_words", SetStrings("llama.attention.head_count_kv", {"2", "2"}), corrupt,
       "head_count_kv has wrong array element type str"},
      {"capped_scores", SetF32("llama.attn_logit_softcapping", 50), unsupported,
       "attn_logit_softcapping is 50: libllama caps nothing"},
      {"capped_logits", SetF32("llama.final_logit_softcapping", 30), unsupported,
       "final_logit_softcapping is 30"},
      {"values_of_other_size", SetU32("llama.attention.value_length", 8), corrupt,
       "'blk.0.attn_v.weight' has wrong shape"},
      {"odd_heads",
       [](GgufEdit& file) {
         SetU32("llama.attention.key_length", 15)(file);
         SetU32("llama.attention.value_length", 15)(file);
       },
       corrupt, "invalid n_rot"},
      {"partial_rope", SetU32("llama.rope.dimension_count", 8), corrupt,
       "invalid n_rot: 8, expected 16"},
      {"zero_context", SetU32("llama.context_length", 0), corrupt, "context_length is 0"},
      {"huge_context", SetU32("llama.context_length", 0xffffffffu), corrupt, "expected 1 to"},
      {"negative_epsilon", SetF32("llama.attention.layer_norm_rms_epsilon", -1), corrupt,
       "expected a number from 0 on"},
      {"nan_epsilon", SetF32("llama.attention.layer_norm_rms_epsilon", nan), corrupt,
       "expected a number from 0 on"},
      {"zero_rope_base", SetF32("llama.rope.freq_base", 0), corrupt, "freq_base is 0"},
      {"infinite_rope_base", SetF32("llama.rope.freq_base", infinity), corrupt, "above 0"},
      {"rope_scaling_type", SetString("llama.rope.scaling.type", "longrope"), unsupported,
       "the file has no factors"},
      {"rope_scaling_shrinks", SetF32("llama.rope.scaling.factor", 0.5f), corrupt, "1 or more"},
      {"rope_scaling_nan", SetF32("llama.rope.scaling.factor", nan), corrupt, "1 or more"},
      {"rope_attention_factor", SetF32("llama.rope.scaling.attn_factor", -2), corrupt, "above 0"},
      {"zero_original_context", SetU32("llama.rope.scaling.original_context_length", 0), corrupt,
       "original_context_length is 0"},
      {"experts_unused", SetU32("llama.expert_count", 8), corrupt, "n_expert_used_max > 0"},
      {"marks_elsewhere", SetString("llama.attention.dms.layout", "projection"), unsupported,
       "\"projection\"; supported are query_last_channel and adapter"},
      {"marks_no_string", SetU32("llama.attention.dms.layout", 1), corrupt, "expected str"},
      {"marks_without_window", Marks(SetU32("llama.attention.dms.window", 0)), corrupt,
       "dms.window is 0"},
      {"marks_behind_the_window", Marks(SetU32("llama.attention.dms.shift", 513)), corrupt,
       "dms.shift is 513; expected 0 to the window, 512"},
      {"marks_behind_a_window_of_its_own", Marks([](GgufEdit& file) {
         SetU32("llama.attention.dms.window", 16)(file);
         SetU32("llama.attention.dms.shift", 17)(file);
       }),
       corrupt, "dms.shift is 17; expected 0 to the window, 16"},
      {"marks_shifted_by_no_integer", Marks(SetString("llama.attention.dms.shift", "1")), corrupt,
       "dms.shift is of type str, expected u32"},
      {"marks_that_make_more_rows", Marks(SetF32("llama.attention.dms.cr", 0.5f)), corrupt,
       "dms.cr is 0.5; expected 1 or more"},
      {"marks_of_a_compression_in_words", Marks(SetString("llama.attention.dms.cr", "4")), corrupt,
       "dms.cr is of type str, expected f32"},
      {"marks_with_zero_scale", Marks(SetF32("llama.attention.dms.alpha_scale", 0)), corrupt,
       "alpha_scale is 0"},
      {"marks_with_nan_offset", Marks(SetF32("llama.attention.dms.alpha_offset", nan)), corrupt,
       "expected a number"},
      {"not_causal",
       [](GgufEdit& file) { gguf_set_val_bool(file.metadata(), "llama.attention.causal", false); },
       unsupported, "does not generate text"},
  };
}

std::vector<BadFile> BadTokenizers() {
  const auto corrupt = StatusCode::kCorrupt;
  const auto unsupported = StatusCode::kUnsupported;
  return {
      {"no_tokens", RemoveKey("tokenizer.ggml.tokens"), corrupt, "cannot find tokenizer vocab"},
      {"tokens_no_array", SetU32("tokenizer.ggml.tokens", 1), corrupt,
       "tokenizer.ggml.tokens has wrong type u32"},
      {"zero_tokens", SetStrings("tokenizer.ggml.tokens", {}), corrupt,
       "'token_embd.weight' has wrong shape"},
      {"other_token_count", SetStrings("tokenizer.ggml.tokens", {"a", "b"}), corrupt,
       "'token_embd.weight' has wrong shape"},
      {"no_tokenizer", RemoveKey("tokenizer.ggml.model"), corrupt, "lacks tokenizer.ggml.model"},
      {"tokenizer_kind", SetString("tokenizer.ggml.model", "bert"), unsupported,
       "llama, gpt2 and gemma4"},
      {"splitter", SetString("tokenizer.ggml.pre", "nonsense"), corrupt,
       "unknown pre-tokenizer type: 'nonsense'"},
      {"no_merges", RemoveKey("tokenizer.ggml.merges"), corrupt, "merges"},
      {"few_scores",
       [](GgufEdit& file) {
         const float score = 0;
         gguf_set_arr_data(file.metadata(), "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, &score, 1);
       },
       corrupt, "scores"},
      {"types_no_integers",
       [](GgufEdit& file) {
         const std::vector<float> types(260, 1);
         gguf_set_arr_data(file.metadata(), "tokenizer.ggml.token_type", GGUF_TYPE_FLOAT32,
                           types.data(), types.size());
       },
       corrupt, "tokenizer.ggml.token_type"},
  };
}

std::vector<BadFile> BadTensors() {
  const auto corrupt = StatusCode::kCorrupt;
  const auto unsupported = StatusCode::kUnsupported;
  const auto remove = [](const char* name) {
    return [name](GgufEdit& file) { file.Remove(name); };
  };
  return {
      {"no_embeddings", remove("token_embd.weight"), corrupt, "'token_embd.weight' not found"},
      {"no_norm", remove("blk.1.attn_norm.weight"), corrupt, "'blk.1.attn_norm.weight' not found"},
      {"no_projection", remove("blk.0.attn_k.weight"), corrupt, "blk.0.attn_k.weight"},
      {"narrow_projection", ReplaceTensor("blk.0.attn_q.weight", GGML_TYPE_F32, 64, 48), corrupt,
       "'blk.0.attn_q.weight' has wrong shape"},
      {"turned_projection", ReplaceTensor("blk.1.ffn_down.weight", GGML_TYPE_F32, 64, 96), corrupt,
       "'blk.1.ffn_down.weight' has wrong shape"},
      {"empty_projection", ReplaceTensor("blk.1.ffn_up.weight", GGML_TYPE_F32, 64, 0), corrupt,
       "tensor blk.1.ffn_up.weight"},
      {"short_norm", ReplaceTensor("output_norm.weight", GGML_TYPE_F32, 32, 1), corrupt,
       "'output_norm.weight' has wrong shape"},
      {"half_norm", ReplaceTensor("output_norm.weight", GGML_TYPE_F16, 64, 1), unsupported,
       "output_norm.weight is of type f16, expected f32"},
      {"integer_matrix", ReplaceTensor("blk.0.attn_output.weight", GGML_TYPE_I32, 64, 64),
       unsupported, "of type i32, which no product takes"},
      {"integer_projection", ReplaceTensor("blk.0.attn_q.weight", GGML_TYPE_I8, 64, 64),
       unsupported, "of type i8, which no product takes"},
      {"half_bias", AddTensor("blk.0.attn_q.bias", GGML_TYPE_F16, 64, 1), unsupported,
       "expected f32"},
      {"long_bias", AddTensor("blk.0.attn_k.bias", GGML_TYPE_F32, 64, 1), corrupt,
       "'blk.0.attn_k.bias' has wrong shape"},
      {"tensor_of_another_family", AddTensor("blk.0.attn_q_norm.weight", GGML_TYPE_F32, 16, 1),
       corrupt, "wrong number of tensors"},
      {"no_norm_of_marks",
       MarksByTensors([](GgufEdit& file) { file.Remove("blk.1.attn_dms_alpha_norm.weight"); }),
       corrupt, "lacks tensor blk.1.attn_dms_alpha_norm.weight"},
      {"no_matrix_of_marks",
       MarksByTensors([](GgufEdit& file) { file.Remove("blk.0.attn_dms_alpha.weight"); }), corrupt,
       "lacks tensor blk.0.attn_dms_alpha.weight"},
      {"short_norm_of_marks",
       MarksByTensors(ReplaceTensor("blk.0.attn_dms_alpha_norm.weight", GGML_TYPE_F32, 32, 1)),
       corrupt, "blk.0.attn_dms_alpha_norm.weight has shape [32], expected [64, 1]"},
      {"marks_of_every_query_head",
       MarksByTensors(ReplaceTensor("blk.1.attn_dms_alpha.weight", GGML_TYPE_F32, 64, 4)), corrupt,
       "blk.1.attn_dms_alpha.weight has shape [64, 4], expected [64, 2]"},
      {"integer_marks",
       MarksByTensors(ReplaceTensor("blk.1.attn_dms_alpha.weight", GGML_TYPE_I32, 64, 2)),
       unsupported, "of type i32, which no product takes"},
      {"tensors_of_marks_without_their_layout",
       AddTensor("blk.0.attn_dms_alpha.weight", GGML_TYPE_F32, 64, 2), unsupported,
       "blk.0.attn_dms_alpha.weight, but llama.attention.dms.layout is not"},
      {"layer_too_many", AddTensor("blk.2.attn_norm.weight", GGML_TYPE_F32, 64, 1), corrupt,
       "wrong number of tensors"},
  };
}

class BadFileTest : public testing::TestWithParam<BadFile> {};

TEST_P(BadFileTest, IsRefusedWithItsReason) {
  const TempFolder folder;
  const std::string path = folder.File("model.gguf");
  ASSERT_TRUE(WriteRandomGguf(SmallOptions(), path).ok());
  ASSERT_TRUE(Model::Load({.path = path}).ok());
  auto file = GgufEdit::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  GetParam().edit(*file);
  ASSERT_TRUE(file->Save(path).ok());
  const Status status = Model::Load({.path = path}).status();
  EXPECT_EQ(status.code(), GetParam().code) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr(GetParam().message));
  EXPECT_THAT(status.message(), HasSubstr(path));
}

// Another program copies the model to its place, say: what was read may be anything, and the next
// time it is there.
TEST(ChangingFile, AFileThatChangesWhileItIsLoadedIsNotCalledCorrupt) {
  const TempFolder folder;
  const std::string path = folder.File("model.gguf");
  ASSERT_TRUE(WriteRandomGguf(SmallOptions(), path).ok());
  auto file = GgufEdit::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  file->Remove("blk.1.ffn_down.weight");
  ASSERT_TRUE(file->Save(path).ok());
  ASSERT_EQ(Model::Load({.path = path}).status().code(), StatusCode::kCorrupt);
  std::atomic<bool> ends = false;
  std::thread writer([&] {
    auto time = std::filesystem::last_write_time(path);
    while (!ends) std::filesystem::last_write_time(path, time += std::chrono::microseconds(1));
  });
  Status status;
  for (int i = 0; i < 1000 && status.code() != StatusCode::kIo; ++i) {
    status = Model::Load({.path = path}).status();
  }
  ends = true;
  writer.join();
  EXPECT_EQ(status.code(), StatusCode::kIo) << status.ToString();
  EXPECT_EQ(status.field(), "");
  EXPECT_THAT(status.message(), HasSubstr("model.gguf changed while it was in use"));
}

const auto kBadFileName = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Metadata, BadFileTest, testing::ValuesIn(BadMetadata()), kBadFileName);
INSTANTIATE_TEST_SUITE_P(Tokenizer, BadFileTest, testing::ValuesIn(BadTokenizers()), kBadFileName);
INSTANTIATE_TEST_SUITE_P(Tensors, BadFileTest, testing::ValuesIn(BadTensors()), kBadFileName);

}  // namespace
}  // namespace ebb
