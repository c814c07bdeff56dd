// Files whose metadata libllama takes at its word: a clear error, and the process goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ebb/engine.h"
#include "tests/support/engine/library_models.h"
#include "tests/support/expect_ok.h"
#include "tests/support/gguf_edit.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

using testing::HasSubstr;

// Loads a model of this architecture, changed, and lets it read two tokens if it loads.
Status LoadChanged(const LibraryModelOptions& options, const GgufChange& change) {
  const TempFolder folder;
  const std::string path = folder.File("model.gguf");
  ExpectOk(WriteLibraryModel(options, path));
  auto edit = GgufEdit::Open(path);
  ExpectOk(edit.status());
  change(*edit);
  const std::string changed = folder.File("changed.gguf");
  ExpectOk(edit->Save(changed));
  const auto model = Model::Load({.path = changed});
  EBB_RETURN_IF_ERROR(model.status());
  EBB_ASSIGN_OR_RETURN(const auto engine, Engine::Create(*model, {.threads = 1}));
  EBB_ASSIGN_OR_RETURN(const auto session, engine->OpenSession({.context = 16}));
  const std::vector<Token> tokens = {1, 2};
  return session->Prefill(tokens).status;
}

TEST(LibraryHostile, CountsThatNoModelHasAreRefused) {
  const LibraryModelOptions options = {"qwen3moe", true};
  for (const char* key : {"block_count", "embedding_length", "attention.head_count",
                          "attention.head_count_kv", "attention.key_length"}) {
    for (const uint32_t value : {0u, 1u << 31, 0xffffffffu}) {
      const Status status = LoadChanged(options, SetU32(std::string("qwen3moe.") + key, value));
      EXPECT_EQ(status.code(), StatusCode::kCorrupt) << key << " " << value;
      EXPECT_THAT(status.message(), HasSubstr(key)) << value;
    }
  }
}

TEST(LibraryHostile, ExpertsThatAreNotThereAreRefused) {
  const LibraryModelOptions options = {"qwen3moe", true};
  for (const uint32_t used : {0u, 9u, 1u << 31}) {
    const Status status = LoadChanged(options, SetU32("qwen3moe.expert_used_count", used));
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << used << ": " << status.ToString();
  }
}

TEST(LibraryHostile, NumbersThatKernelsDivideByOrAssertAreRefused) {
  const LibraryModelOptions options = {"qwen35moe", true};
  for (const auto& [key, value] :
       {std::pair("full_attention_interval", 0u), std::pair("ssm.inner_size", 1u << 31),
        std::pair("ssm.time_step_rank", 0u)}) {
    const Status status = LoadChanged(options, SetU32(std::string("qwen35moe.") + key, value));
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr(key));
  }
  const auto epsilon = [](GgufEdit& file) {
    gguf_set_val_f32(file.metadata(), "qwen35moe.attention.layer_norm_rms_epsilon", -1);
  };
  EXPECT_THAT(LoadChanged(options, epsilon).message(), HasSubstr("layer_norm_rms_epsilon is -1"));
}

TEST(LibraryHostile, MissingTensorsAreNamed) {
  const Status status = LoadChanged({"qwen3moe", true}, RemoveTensor("blk.1.ffn_down_exps.weight"));
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("blk.1.ffn_down_exps.weight"));
}

TEST(LibraryHostile, TensorsOfAnotherShapeAreNamed) {
  const Status status = LoadChanged({"qwen3moe", true},
                                    ReplaceTensor("blk.0.attn_q.weight", GGML_TYPE_F32, 256, 128));
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("blk.0.attn_q.weight"));
}

TEST(LibraryHostile, SoftCapsThatAreNoneAreRefused) {
  for (const float cap :
       {-1.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const auto set_cap = [&](GgufEdit& file) {
      gguf_set_val_f32(file.metadata(), "gemma2.attn_logit_softcapping", cap);
    };
    const Status status = LoadChanged({"gemma2", false}, set_cap);
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << cap << ": " << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("a soft cap of")) << cap;
  }
}

// Layers need two that store rows.
TEST(LibraryHostile, MoreSharedLayersThanThereAreAreRefused) {
  for (const uint32_t shared : {9u, 10u, 1u << 31, 0xffffffffu}) {
    const Status status =
        LoadChanged(Gemma4WithSharedRows(), SetU32("gemma4.attention.shared_kv_layers", shared));
    EXPECT_FALSE(status.ok()) << shared;
  }
}

TEST(LibraryHostile, RopeBeyondTheHeadIsRefusedBeforeAStep) {
  const Status wide =
      LoadChanged({"gemma4", false}, SetU32("gemma4.rope.dimension_count_swa", 0x7fffffff));
  EXPECT_EQ(wide.code(), StatusCode::kCorrupt) << wide.ToString();
  const auto sections = [](GgufEdit& file) {
    const int32_t sizes[4] = {65535, 0, 0, 0};
    gguf_set_arr_data(file.metadata(), "qwen35moe.rope.dimension_sections", GGUF_TYPE_INT32, sizes,
                      4);
  };
  const Status section = LoadChanged({"qwen35moe", true}, sections);
  EXPECT_EQ(section.code(), StatusCode::kCorrupt) << section.ToString();
  EXPECT_THAT(section.message(), HasSubstr("sections of RoPE"));
}

}  // namespace
}  // namespace ebb
