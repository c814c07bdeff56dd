#include "src/model/weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ebb/model.h"
#include "src/model/gguf_file.h"
#include "src/model/loaded_model.h"
#include "tests/support/gguf_edit.h"
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
  void Write() {
    const Status written = WriteRandomGguf(options_, path_);
    ASSERT_TRUE(written.ok()) << written.ToString();
  }
  const LoadedModel& Load(WeightMode mode = WeightMode::kAsStored) {
    Write();
    return LoadWritten(mode);
  }
  const LoadedModel& LoadWritten(WeightMode mode = WeightMode::kAsStored) {
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
  // The bytes of tensors of the file, one after the other.
  [[nodiscard]] std::string FileBytes(const std::vector<std::string>& names) const {
    std::string bytes;
    for (const std::string& name : names) {
      const auto data = file_->FindTensor(name)->data;
      bytes.append(reinterpret_cast<const char*>(data.data()), data.size());
    }
    return bytes;
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

TEST_F(WeightsTest, AMatrixWithoutAFasterLayoutStaysInTheMappedFile) {
  const LoadedModel& model = Load();
  EXPECT_TRUE(IsMapped(model.token_embedding));
  EXPECT_TRUE(IsMapped(model.layers[1].wo));
  EXPECT_TRUE(IsMapped(model.layers[1].attn_norm));
  EXPECT_EQ(Bytes(model.layers[1].wo), FileBytes({"blk.1.attn_output.weight"}));
}

TEST_F(WeightsTest, TiedEmbeddingsAreHeldOnce) {
  const LoadedModel& model = Load();
  EXPECT_EQ(model.output, model.token_embedding);
}

TEST_F(WeightsTest, SmallProjectionsThatLieApartAreCopiedTogether) {
  const LoadedModel& model = Load();
  const LayerWeights& layer = model.layers[1];
  ASSERT_NE(layer.wqkv, nullptr);
  EXPECT_FALSE(IsMapped(layer.wqkv));
  EXPECT_EQ(Bytes(layer.wqkv),
            FileBytes({"blk.1.attn_q.weight", "blk.1.attn_k.weight", "blk.1.attn_v.weight"}));
}

TEST_F(WeightsTest, NeighboursInTheFileAreJoinedWhereTheyAre) {
  const LoadedModel& model = Load();
  ASSERT_NE(model.layers[0].ffn_gate_up, nullptr);
  EXPECT_TRUE(IsMapped(model.layers[0].ffn_gate_up));
  EXPECT_EQ(Bytes(model.layers[0].ffn_gate_up),
            FileBytes({"blk.0.ffn_gate.weight", "blk.0.ffn_up.weight"}));
}

TEST_F(WeightsTest, ProjectionsOfOtherTypesAreLeftOut) {
  options_.value_type = "f16";
  const LoadedModel& model = Load();
  EXPECT_EQ(model.layers[0].wqkv, nullptr);
  ASSERT_NE(model.layers[0].wqk, nullptr);
  EXPECT_EQ(Bytes(model.layers[0].wqk), FileBytes({"blk.0.attn_q.weight", "blk.0.attn_k.weight"}));
  EXPECT_EQ(Bytes(model.layers[0].wv), FileBytes({"blk.0.attn_v.weight"}));
}

TEST_F(WeightsTest, LargeProjectionsThatLieApartAreNotCopied) {
  options_.embed_dim = 512;
  options_.num_q_heads = 8;
  const LoadedModel& model = Load();
  EXPECT_EQ(model.layers[0].wqkv, nullptr);
  EXPECT_EQ(model.layers[0].wqk, nullptr);
  EXPECT_TRUE(IsMapped(model.layers[0].wq));
  EXPECT_TRUE(IsMapped(model.layers[0].wk));
  EXPECT_TRUE(IsMapped(model.layers[0].wv));
}

TEST_F(WeightsTest, AMissingBiasIsZero) {
  options_.biases = RandomGgufOptions::Biases::kQkv;
  Write();
  auto edit = GgufEdit::Open(path_);
  ASSERT_TRUE(edit.ok());
  edit->Remove("blk.0.attn_k.bias");
  ASSERT_TRUE(edit->Save(path_).ok());
  const LoadedModel& model = LoadWritten();
  EXPECT_EQ(Bytes(model.layers[0].bqkv), FileBytes({"blk.0.attn_q.bias"}) +
                                             std::string(2 * 64 * sizeof(float), '\0') +
                                             FileBytes({"blk.0.attn_v.bias"}));
  EXPECT_EQ(Bytes(model.layers[1].bqkv),
            FileBytes({"blk.1.attn_q.bias", "blk.1.attn_k.bias", "blk.1.attn_v.bias"}));
}

TEST_F(WeightsTest, HeadNormsAreRepeatedForEveryHead) {
  options_.family = "qwen3";
  const LoadedModel& model = Load();
  const std::string q = "blk.1.attn_q_norm.weight", k = "blk.1.attn_k_norm.weight";
  EXPECT_EQ(Bytes(model.layers[1].qk_norm), FileBytes({q, q, q, q, k, k}));
}

TEST_F(WeightsTest, WidenedMatricesHoldTheDequantizedValues) {
  options_.weight_type = "q4_0";
  const LoadedModel& model = Load(WeightMode::kDequantize);
  for (const auto& [tensor, name] : std::vector<std::pair<const ggml_tensor*, std::string>>{
           {model.token_embedding, "token_embd.weight"},
           {model.layers[1].ffn_down, "blk.1.ffn_down.weight"}}) {
    ASSERT_EQ(tensor->type, GGML_TYPE_F32);
    const GgufTensor* source = file_->FindTensor(name);
    std::vector<float> expected(ggml_nelements(tensor));
    ggml_get_type_traits(source->type)
        ->to_float(source->data.data(), expected.data(), ggml_nelements(tensor));
    EXPECT_EQ(std::memcmp(tensor->data, expected.data(), ggml_nbytes(tensor)), 0) << name;
  }
  EXPECT_EQ(model.output, model.token_embedding);
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
  EXPECT_FALSE(IsMapped(model.layers[1].ffn_down));
  EXPECT_EQ(Bytes(model.layers[1].ffn_down), FileBytes({"blk.1.ffn_down.weight"}));
  EXPECT_NE(model.layers[1].wqkv, nullptr);
  EXPECT_TRUE(IsMapped(model.layers[1].attn_norm));
  EXPECT_EQ(model.output, model.token_embedding);
  EXPECT_FALSE(IsMapped(model.output));
  EXPECT_EQ(Bytes(model.output), FileBytes({"token_embd.weight"}));
}

TEST_F(WeightsTest, ProductsTakeTheLayoutThatGgmlPrefers) {
  const std::string expected = BufferOfQ4();
  if (expected.empty()) GTEST_SKIP() << "ggml has no layout of its own for Q4_0 on this processor";
  options_.weight_type = "q4_0";
  options_.num_tokens = 288;  // AMX takes multiples of 32
  const LoadedModel& model = Load();
  const auto buffer_name = [](const ggml_tensor* tensor) {
    return std::string(ggml_backend_buffer_name(tensor->buffer));
  };
  EXPECT_EQ(buffer_name(model.layers[0].wqkv), expected);
  EXPECT_EQ(buffer_name(model.layers[0].ffn_gate_up), expected);
  EXPECT_EQ(buffer_name(model.layers[1].ffn_down), expected);
  // Rows are looked up in the embeddings: they stay as they are, and the output is a second copy.
  EXPECT_TRUE(IsMapped(model.token_embedding));
  EXPECT_EQ(buffer_name(model.output), expected);
}

}  // namespace
}  // namespace ebb
