#include "src/model/loaded/weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ebb/model.h"
#include "src/model/library/library_model.h"
#include "src/model/loaded/gguf_file.h"
#include "src/model/loaded/loaded_model.h"
#include "tests/support/random_gguf.h"
#include "tests/support/skip.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

class WeightsTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.embed_dim = 256;
    options_.num_q_heads = 4;
    options_.num_kv_heads = 2;
    options_.head_dim = 64;
    options_.feed_forward_dim = 512;
    options_.num_tokens = 264;
  }
  const LoadedModel& Load(WeightMode mode = WeightMode::kAsStored) {
    const Status written = WriteRandomGguf(options_, path_);
    EXPECT_TRUE(written.ok()) << written.ToString();
    auto model = Model::Load({.path = path_, .weights = mode});
    EXPECT_TRUE(model.ok()) << model.status().ToString();
    model_ = *model;
    auto file = GgufFile::Open(path_);
    EXPECT_TRUE(file.ok());
    file_.emplace(*std::move(file));
    return model_->loaded();
  }
  [[nodiscard]] bool IsMapped(const ggml_tensor* tensor) const {
    const auto mapping = model_->loaded().buffers->mappings.front().bytes();
    const auto* data = static_cast<const std::byte*>(tensor->data);
    return data >= mapping.data() && data < mapping.data() + mapping.size();
  }
  [[nodiscard]] std::string FileBytes(const std::string& name) const {
    const auto data = file_->FindTensor(name)->data;
    return {reinterpret_cast<const char*>(data.data()), data.size()};
  }
  // A tensor that the graph reads. "token_embd.weight" is the output of a model that ties the two.
  [[nodiscard]] const ggml_tensor* Weight(const std::string& name) const {
    for (const ggml_tensor* weight : model_->loaded().library->weights_read()) {
      if (name == ggml_get_name(weight)) return weight;
    }
    ADD_FAILURE() << "no weight " << name;
    return nullptr;
  }
  static std::string Bytes(const ggml_tensor* tensor) {
    return {static_cast<const char*>(tensor->data), ggml_nbytes(tensor)};
  }
  // The buffer of ggml's own layout for Q4_0 on this processor; empty: it has none.
  static std::string BufferOfQ4() {
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    const std::string features = [&] {
      std::string all;
      auto* get = reinterpret_cast<ggml_backend_get_features_t>(ggml_backend_reg_get_proc_address(
          ggml_backend_dev_backend_reg(cpu), "ggml_backend_get_features"));
      for (auto* f = get(ggml_backend_dev_backend_reg(cpu)); f->name != nullptr; ++f) {
        all += std::string(f->name) + " ";
      }
      return all;
    }();
    const auto has = [&](const char* feature) {
      return features.find(feature) != std::string::npos;
    };
#ifdef EBB_GGML_IS_PATCHED
    if (has("AMX_INT8")) return "AMX";
#endif
    if (has("REPACK") && (has("AVX2") || has("DOTPROD"))) return "CPU_REPACK";
    return "";
  }

  RandomGgufOptions options_;
  TempFolder folder_;
  std::string path_ = folder_.File("model.gguf");
  std::shared_ptr<const Model> model_;
  std::optional<GgufFile> file_;
};

TEST_F(WeightsTest, VectorsAndTablesStayInTheMappedFile) {
  options_.embeddings = RandomGgufOptions::Embeddings::kUntied;
  Load();
  EXPECT_TRUE(IsMapped(Weight("blk.1.attn_norm.weight")));
  EXPECT_GT(model_->loaded().lookup_bytes, 0u);
}

TEST_F(WeightsTest, MatricesThatAreMultipliedWithTheSameTokensLieSideBySide) {
  Load();
  const auto end = [](const ggml_tensor* weight) {
    return static_cast<const std::byte*>(weight->data) + ggml_nbytes(weight);
  };
  for (const auto& [first, second] : std::vector<std::pair<std::string, std::string>>{
           {"blk.1.attn_q.weight", "blk.1.attn_k.weight"},
           {"blk.1.attn_k.weight", "blk.1.attn_v.weight"},
           {"blk.0.ffn_gate.weight", "blk.0.ffn_up.weight"}}) {
    EXPECT_FALSE(IsMapped(Weight(first)));
    EXPECT_EQ(end(Weight(first)), Weight(second)->data) << first;
    EXPECT_EQ(Bytes(Weight(first)), FileBytes(first));
  }
}

TEST_F(WeightsTest, TiedEmbeddingsAreHeldOnce) {
  EXPECT_EQ(Load().lookup_bytes, 0u);
  options_.embeddings = RandomGgufOptions::Embeddings::kUntied;
  EXPECT_EQ(Load().lookup_bytes, FileBytes("token_embd.weight").size());
}

TEST_F(WeightsTest, WidenedMatricesHoldTheDequantizedValues) {
  options_.weight_type = "q4_0";
  Load(WeightMode::kDequantize);
  for (const char* name : {"token_embd.weight", "blk.1.ffn_down.weight"}) {
    const ggml_tensor* tensor = Weight(name);
    ASSERT_EQ(tensor->type, GGML_TYPE_F32);
    const GgufTensor* source = file_->FindTensor(name);
    std::vector<float> expected(ggml_nelements(tensor));
    ggml_get_type_traits(source->type)
        ->to_float(source->data.data(), expected.data(), ggml_nelements(tensor));
    EXPECT_EQ(std::memcmp(tensor->data, expected.data(), ggml_nbytes(tensor)), 0) << name;
  }
  EXPECT_EQ(model_->loaded().lookup_bytes, 0u);
}

TEST_F(WeightsTest, MatricesOfAModelThatOutgrowsTheTlbAreCopiedToHugePages) {
  std::ifstream modes("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string mode;
  std::getline(modes, mode);
  if (mode.empty() || mode.find("[never]") != std::string::npos) {
    EBB_SKIP_WITHOUT("huge_pages") << "this system gives no huge pages";
  }
  options_.embed_dim = 512;
  options_.feed_forward_dim = 2048;
  const LoadedModel& model = Load();
  ASSERT_GT(model_->weight_bytes(), 16u << 20);
  EXPECT_FALSE(IsMapped(Weight("blk.1.ffn_down.weight")));
  EXPECT_EQ(Bytes(Weight("blk.1.ffn_down.weight")), FileBytes("blk.1.ffn_down.weight"));
  EXPECT_TRUE(IsMapped(Weight("blk.1.attn_norm.weight")));
  EXPECT_EQ(model.lookup_bytes, 0u);
  EXPECT_FALSE(IsMapped(Weight("token_embd.weight")));
  EXPECT_EQ(Bytes(Weight("token_embd.weight")), FileBytes("token_embd.weight"));
}

TEST_F(WeightsTest, ProductsTakeTheLayoutThatGgmlPrefers) {
  const std::string expected = BufferOfQ4();
  if (expected.empty()) GTEST_SKIP() << "ggml has no layout of its own for Q4_0 on this processor";
  options_.weight_type = "q4_0";
  options_.num_tokens = 288;  // AMX takes multiples of 32
  const LoadedModel& model = Load();
  for (const char* name : {"blk.0.attn_q.weight", "blk.0.ffn_gate.weight", "blk.1.ffn_down.weight",
                           "token_embd.weight"}) {
    EXPECT_EQ(std::string(ggml_backend_buffer_name(Weight(name)->buffer)), expected) << name;
  }
  // Rows are looked up in the embeddings: they stay as they are, and the output is a second copy.
  EXPECT_EQ(model.lookup_bytes, FileBytes("token_embd.weight").size());
}

}  // namespace
}  // namespace ebb
