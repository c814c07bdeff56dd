// An adapter's file beside a model's: what it makes of the model, and what is refused.
#include "src/model/adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "ebb/model.h"
#include "tests/support/gguf_edit.h"
#include "tests/support/random_gguf.h"
#include "tests/support/small_model.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

using testing::HasSubstr;
using testing::Not;

RandomGgufOptions AdapterOptions() {
  RandomGgufOptions options = SmallOptions();
  options.eviction_window = 64;
  options.eviction_shift = 3;
  options.marks = RandomGgufOptions::Marks::kAdapter;
  return options;
}

class AdapterTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(WriteRandomGguf(SmallOptions(), path_).ok());
    ASSERT_TRUE(WriteRandomAdapter(AdapterOptions(), adapter_).ok());
  }
  [[nodiscard]] Result<std::shared_ptr<const Model>> Load(
      WeightMode weights = WeightMode::kAsStored) const {
    return Model::Load({.path = path_, .adapter = adapter_, .weights = weights});
  }
  static void Edit(const std::string& path, const GgufChange& edit) {
    auto file = GgufEdit::Open(path);
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    edit(*file);
    ASSERT_TRUE(file->Save(path).ok());
  }

  TempFolder folder_;
  const std::string path_ = folder_.File("model.gguf");
  const std::string adapter_ = folder_.File("adapter.gguf");
};

std::vector<float> Values(const ggml_tensor* tensor) {
  std::vector<float> values(ggml_nelements(tensor));
  std::memcpy(values.data(), tensor->data, values.size() * sizeof(float));
  return values;
}

TEST_F(AdapterTest, MakesTheModelThatHoldsItsTensorsItself) {
  const std::string whole_path = folder_.File("whole.gguf");
  ASSERT_TRUE(WriteRandomGguf(AdapterOptions(), whole_path).ok());
  const auto whole = Model::Load({.path = whole_path});
  const auto joined = Load();
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  ASSERT_TRUE(joined.ok()) << joined.status().ToString();
  for (const Model* model : {whole->get(), joined->get()}) {
    EXPECT_EQ(model->eviction_window(), 64);
    EXPECT_EQ(model->eviction_shift(), 3);
    EXPECT_EQ(model->loaded().layers[0].kept_channels, nullptr) << "no channel is taken out";
  }
  for (int i = 0; i < 2; ++i) {
    const LayerWeights& a = (*whole)->loaded().layers[i];
    const LayerWeights& b = (*joined)->loaded().layers[i];
    EXPECT_EQ(Values(a.alpha_norm), Values(b.alpha_norm));
    EXPECT_EQ(Values(a.alpha), Values(b.alpha));
  }
  EXPECT_EQ((*joined)->weight_bytes(), (*whole)->weight_bytes());
  EXPECT_EQ((*whole)->description(), "Random, llama, F32");
  EXPECT_EQ((*joined)->description(), "Random, llama, F32, adapter Marks");
}

TEST_F(AdapterTest, IsPartOfTheModelsIdentity) {
  const auto plain = Model::Load({.path = path_});
  const auto first = Load();
  const auto again = Load();
  Edit(adapter_,
       [](GgufEdit& file) { gguf_set_val_u32(file.metadata(), "llama.attention.dms.shift", 4); });
  const auto other = Load();
  RandomGgufOptions options = AdapterOptions();
  ++options.seed;
  ASSERT_TRUE(WriteRandomAdapter(options, adapter_).ok());
  const auto other_weights = Load();
  ASSERT_TRUE(plain.ok() && first.ok() && again.ok() && other.ok() && other_weights.ok());
  EXPECT_EQ((*first)->fingerprint(), (*again)->fingerprint());
  EXPECT_NE((*first)->fingerprint(), (*plain)->fingerprint());
  EXPECT_NE((*first)->fingerprint(), (*other)->fingerprint());
  EXPECT_NE((*first)->fingerprint(), (*other_weights)->fingerprint());
}

TEST_F(AdapterTest, IsWidenedWithTheModel) {
  Edit(adapter_, [](GgufEdit& file) {
    for (const char* name : {"blk.0.attn_dms_alpha.weight", "blk.1.attn_dms_alpha.weight"}) {
      file.Remove(name);
      file.Add(name, GGML_TYPE_F16, 64, 2);
    }
  });
  const auto stored = Load();
  const auto widened = Load(WeightMode::kDequantize);
  ASSERT_TRUE(stored.ok()) << stored.status().ToString();
  ASSERT_TRUE(widened.ok()) << widened.status().ToString();
  EXPECT_EQ((*stored)->loaded().layers[1].alpha->type, GGML_TYPE_F16);
  EXPECT_EQ((*widened)->loaded().layers[1].alpha->type, GGML_TYPE_F32);
}

TEST_F(AdapterTest, AsksNoTerminalToObeyItsName) {
  Edit(adapter_,
       [](GgufEdit& file) { gguf_set_val_str(file.metadata(), "general.name", "\x1b[2J"); });
  const auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_THAT((*model)->description(), Not(HasSubstr("\x1b")));
}

TEST_F(AdapterTest, AFileThatIsNoneIsNamed) {
  const auto refusal = [&](const std::string& adapter) {
    return Model::Load({.path = path_, .adapter = adapter}).status();
  };
  EXPECT_EQ(refusal(folder_.File("none.gguf")).code(), StatusCode::kNotFound);
  EXPECT_THAT(refusal(folder_.File("none.gguf")).message(), HasSubstr("none.gguf"));
  EXPECT_EQ(refusal("/dev/null").code(), StatusCode::kIo);
}

struct BadAdapter {
  std::string name;
  GgufChange edit;
  StatusCode code;
  std::string message;  // that the error contains
};
std::ostream& operator<<(std::ostream& out, const BadAdapter& bad) { return out << bad.name; }

std::vector<BadAdapter> BadAdapters() {
  const auto corrupt = StatusCode::kCorrupt;
  const auto unsupported = StatusCode::kUnsupported;
  const auto invalid = StatusCode::kInvalidArgument;
  return {
      {"no_type", RemoveKey("general.type"), unsupported,
       "expected an adapter's file: general.type is \"\", not \"adapter\""},
      {"a_model", SetString("general.type", "model"), unsupported, "general.type is \"model\""},
      {"type_no_string", SetU32("general.type", 1), corrupt, "general.type is of type u32"},
      {"no_architecture", RemoveKey("general.architecture"), corrupt, "lacks general.architecture"},
      {"another_architecture", SetString("general.architecture", "qwen2"), invalid,
       "an adapter for models of the family \"qwen2\"; this model is of \"llama\""},
      {"no_layout", RemoveKey("llama.attention.dms.layout"), unsupported,
       "lacks llama.attention.dms.layout: adapters that do something else"},
      {"layout_of_a_model", SetString("llama.attention.dms.layout", "query_last_channel"),
       unsupported, "llama.attention.dms.layout is that of a model; expected \"adapter\""},
      {"another_layout", SetString("llama.attention.dms.layout", "projection"), unsupported,
       "\"projection\"; supported are"},
      {"shift_behind_the_window", SetU32("llama.attention.dms.shift", 65), corrupt,
       "dms.shift is 65; expected 0 to the window, 64"},
      {"fewer_layers",
       [](GgufEdit& file) {
         file.Remove("blk.1.attn_dms_alpha.weight");
         file.Remove("blk.1.attn_dms_alpha_norm.weight");
       },
       corrupt, "lacks tensor blk.1.attn_dms_alpha_norm.weight"},
      {"no_matrix", RemoveTensor("blk.0.attn_dms_alpha.weight"), corrupt,
       "lacks tensor blk.0.attn_dms_alpha.weight"},
      {"more_layers", AddTensor("blk.2.attn_dms_alpha.weight", GGML_TYPE_F32, 64, 2), unsupported,
       "blk.2.attn_dms_alpha.weight, which no adapter for a model of 2 layers has"},
      {"another_tensor", AddTensor("blk.0.attn_q.weight", GGML_TYPE_F32, 64, 64), unsupported,
       "blk.0.attn_q.weight, which no adapter"},
      {"long_norm", ReplaceTensor("blk.0.attn_dms_alpha_norm.weight", GGML_TYPE_F32, 96, 1),
       corrupt, "has shape [96], expected [64, 1]"},
      {"half_norm", ReplaceTensor("blk.0.attn_dms_alpha_norm.weight", GGML_TYPE_F16, 64, 1),
       unsupported, "of type f16, expected f32"},
      {"another_width", ReplaceTensor("blk.1.attn_dms_alpha.weight", GGML_TYPE_F32, 32, 2), corrupt,
       "has shape [32, 2], expected [64, 2]"},
      {"other_kv_heads", ReplaceTensor("blk.1.attn_dms_alpha.weight", GGML_TYPE_F32, 64, 3),
       corrupt, "has shape [64, 3], expected [64, 2]"},
      {"integer_matrix", ReplaceTensor("blk.1.attn_dms_alpha.weight", GGML_TYPE_I8, 64, 2),
       unsupported, "of type i8, which no product takes"},
  };
}

class BadAdapterTest : public AdapterTest, public testing::WithParamInterface<BadAdapter> {};

TEST_P(BadAdapterTest, IsRefusedWithItsReason) {
  ASSERT_TRUE(Load().ok());
  Edit(adapter_, GetParam().edit);
  const Status status = Load().status();
  EXPECT_EQ(status.code(), GetParam().code) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr(GetParam().message));
  EXPECT_THAT(status.message(), HasSubstr(adapter_));
  EXPECT_THAT(status.message(), Not(HasSubstr(path_)));
}

INSTANTIATE_TEST_SUITE_P(All, BadAdapterTest, testing::ValuesIn(BadAdapters()),
                         [](const auto& info) { return info.param.name; });

TEST_F(AdapterTest, IsRefusedBesideAModelThatMarksRows) {
  for (const auto marks :
       {RandomGgufOptions::Marks::kQueryChannel, RandomGgufOptions::Marks::kAdapter}) {
    RandomGgufOptions options = AdapterOptions();
    options.marks = marks;
    ASSERT_TRUE(WriteRandomGguf(options, path_).ok());
    const Status status = Load().status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("this model does so already"));
    EXPECT_THAT(status.message(), HasSubstr(adapter_));
  }
}

TEST_F(AdapterTest, FlippedBitsGiveAModelOrAnErrorNeverAnAbort) {
  std::ifstream file(adapter_, std::ios::binary);
  const std::string bytes = {std::istreambuf_iterator<char>(file), {}};
  const size_t header = bytes.rfind("attn_dms_alpha") + 64;
  std::mt19937 random(3);
  int errors = 0;
  for (int i = 0; i < 300; ++i) {
    std::string flipped = bytes;
    flipped[random() % header] ^= static_cast<char>(1 << (random() % 8));
    if (i % 10 == 0) flipped.resize(random() % bytes.size());
    std::ofstream(adapter_, std::ios::binary | std::ios::trunc) << flipped;
    const auto model = Load();
    if (!model.ok()) {
      ++errors;
      EXPECT_THAT(model.status().message(), HasSubstr(adapter_));
    }
  }
  EXPECT_GT(errors, 100);
}

TEST_F(AdapterTest, AModelThatIsBadIsNamedItself) {
  Edit(path_, [](GgufEdit& file) { file.Remove("output_norm.weight"); });
  EXPECT_THAT(Load().status().message(), HasSubstr(path_));
}

}  // namespace
}  // namespace ebb
