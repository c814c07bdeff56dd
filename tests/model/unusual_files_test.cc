// Files of known families that have more than text weights in them, or heads that the kernels take
// padded alone: libllama's builders run them, or what the text does not need is left out.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "ebb/engine.h"
#include "ebb/model.h"
#include "tests/support/engine/engine_logits.h"
#include "tests/support/engine/libllama_runner.h"
#include "tests/support/engine/library_models.h"
#include "tests/support/gguf_edit.h"
#include "tests/support/logits.h"
#include "tests/support/model_variants.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

class UnusualFiles : public testing::Test {
 protected:
  static std::shared_ptr<const Model> Load(const std::string& path,
                                           WeightMode weights = ModelOptions().weights) {
    auto model = Model::Load({.path = path, .weights = weights});
    EXPECT_TRUE(model.ok()) << model.status().ToString();
    return model.ok() ? *model : nullptr;
  }
  std::vector<float> Logits(const std::string& path, const EngineLogitsOptions& options = kPlain,
                            WeightMode weights = ModelOptions().weights) {
    const auto model = Load(path, weights);
    if (model == nullptr) return {};
    const auto logits = EngineLogits(model, tokens_, options);
    EXPECT_TRUE(logits.ok()) << logits.status().ToString();
    return logits.ok() ? *logits : std::vector<float>();
  }
  // Copies a file with changes.
  std::string Edit(const std::string& path, const std::string& name, const GgufChange& change) {
    auto edit = GgufEdit::Open(path);
    EXPECT_TRUE(edit.ok()) << edit.status().ToString();
    change(*edit);
    const Status saved = edit->Save(folder_.File(name));
    EXPECT_TRUE(saved.ok()) << saved.ToString();
    return folder_.File(name);
  }
  std::string WriteRandom(const RandomGgufOptions& options) {
    const std::string path = folder_.File("random.gguf");
    const Status written = WriteRandomGguf(options, path);
    EXPECT_TRUE(written.ok()) << written.ToString();
    tokens_ = RandomTokens(options, 48, 5);
    return path;
  }
  std::string WriteLibrary(const LibraryModelOptions& options) {
    const std::string path = folder_.File("library.gguf");
    const Status written = WriteLibraryModel(options, path);
    EXPECT_TRUE(written.ok()) << written.ToString();
    for (Token token = 4; token < 52; ++token) tokens_.push_back(token);
    return path;
  }

  static inline const EngineLogitsOptions kPlain = {
      .engine = {.threads = 2, .kv_type = RowType::kF32}};
  const TempFolder folder_;
  std::vector<Token> tokens_;
};

// Names of the matrices of a layer, without ".weight".
constexpr const char* kMatrices[] = {"attn_q",   "attn_k", "attn_v",  "attn_output",
                                     "ffn_gate", "ffn_up", "ffn_down"};

class Nvfp4Files : public UnusualFiles, public testing::WithParamInterface<const char*> {
 protected:
  // How much larger than the weights of the model the stored ones are.
  static float FactorOf(size_t matrix, int power) {
    return std::ldexp(1.0f, power + static_cast<int>(matrix % 3));
  }
  // Stores the matrices in NVFP4, times FactorOf(), with the scales that take that back.
  static GgufChange Quantize(int power) {
    return [power](GgufEdit& file) {
      for (int layer = 0; layer < 2; ++layer) {
        for (size_t i = 0; i < std::size(kMatrices); ++i) {
          const std::string name = fmt::format("blk.{}.{}", layer, kMatrices[i]);
          const ggml_tensor* wide = file.tensor(name + ".weight");
          const float* floats = ggml_get_data_f32(wide);
          std::vector<float> weights(floats, floats + ggml_nelements(wide));
          for (float& weight : weights) weight *= FactorOf(i, power);
          const int64_t columns = wide->ne[0], rows = wide->ne[1];
          file.Remove(name + ".weight");
          file.Add(name + ".weight", GGML_TYPE_NVFP4, columns, rows);
          ggml_quantize_chunk(GGML_TYPE_NVFP4, weights.data(), file.tensor(name + ".weight")->data,
                              0, rows, columns, nullptr);
          for (const char* scale : {".scale", ".input_scale"}) {
            file.Add(name + scale, GGML_TYPE_F32, 1, 1);
            *ggml_get_data_f32(file.tensor(name + scale)) = 1 / FactorOf(i, power);
          }
        }
      }
    };
  }
  // Widens such a file again, without scales.
  static void Widen(GgufEdit& file, int power) {
    file.Dequantize();
    for (int layer = 0; layer < 2; ++layer) {
      for (size_t i = 0; i < std::size(kMatrices); ++i) {
        const std::string name = fmt::format("blk.{}.{}", layer, kMatrices[i]);
        for (const char* scale : {".scale", ".input_scale"}) file.Remove(name + scale);
        const ggml_tensor* weights = file.tensor(name + ".weight");
        float* floats = ggml_get_data_f32(weights);
        for (int64_t k = 0; k < ggml_nelements(weights); ++k) floats[k] /= FactorOf(i, power);
      }
    }
  }
};

TEST_P(Nvfp4Files, ScalesOfWeightsAreApplied) {
  const std::string path = WriteRandom({.family = GetParam()});
  const std::string scaled = Edit(path, "scaled.gguf", Quantize(6));
  const auto model = Load(scaled);
  ASSERT_NE(model, nullptr);
  const std::vector<float> logits = Logits(scaled);
  // Powers of two change no bit.
  const std::string twice = Edit(path, "twice.gguf", Quantize(7));
  EXPECT_EQ(LargestDifference(logits, Logits(twice)), 0);
  // The kernels round what they multiply to 8 bits.
  const std::string wide = Edit(scaled, "wide.gguf", [](GgufEdit& file) { Widen(file, 6); });
  const std::vector<float> expected = Logits(wide);
  EXPECT_LE(LargestDifference(logits, expected), 0.3 * StandardDeviation(expected));
  const std::vector<float> widened = Logits(scaled, kPlain, WeightMode::kDequantize);
  EXPECT_LE(LargestDifference(widened, expected), 1e-3 * StandardDeviation(expected));
}

INSTANTIATE_TEST_SUITE_P(Families, Nvfp4Files,
                         testing::Values("llama", "qwen2", "qwen3", "gemma3", "deci"),
                         [](const auto& info) { return info.param; });

// Stores the experts' matrices in NVFP4, each expert's times a power of two, which its scale takes
// back; or, widened again, in F32 and with scales of 1.
GgufChange QuantizeExperts(int power, bool is_widened) {
  return [=](GgufEdit& file) {
    for (const std::string& name : file.names()) {
      if (!name.ends_with("_exps.weight")) continue;
      const ggml_tensor* wide = file.tensor(name);
      const int64_t columns = wide->ne[0], rows = wide->ne[1], experts = wide->ne[2];
      const std::string scale_name = name.substr(0, name.rfind('.')) + ".scale";
      float* const scales = ggml_get_data_f32(file.tensor(scale_name));
      std::vector<float> weights(ggml_get_data_f32(wide),
                                 ggml_get_data_f32(wide) + ggml_nelements(wide));
      for (int64_t i = 0; i < ggml_nelements(wide); ++i) {
        const auto expert = static_cast<int>(i / (columns * rows));
        weights[i] = std::ldexp(weights[i], power + expert % 3);
        scales[expert] = std::ldexp(1.0f, -power - expert % 3);
      }
      std::vector<std::byte> bytes(ggml_row_size(GGML_TYPE_NVFP4, columns) * rows * experts);
      ggml_quantize_chunk(GGML_TYPE_NVFP4, weights.data(), bytes.data(), 0, rows * experts, columns,
                          nullptr);
      file.Remove(name);
      file.Add(name, is_widened ? GGML_TYPE_F32 : GGML_TYPE_NVFP4, columns, rows, experts);
      void* const data = file.tensor(name)->data;
      if (!is_widened) {
        std::memcpy(data, bytes.data(), bytes.size());
        continue;
      }
      auto* const floats = static_cast<float*>(data);
      ggml_get_type_traits(GGML_TYPE_NVFP4)
          ->to_float(bytes.data(), floats, columns * rows * experts);
      for (int64_t i = 0; i < columns * rows * experts; ++i) {
        floats[i] *= scales[i / (columns * rows)];
      }
      std::fill_n(scales, experts, 1.0f);
    }
  };
}

// libllama's builder of qwen3moe applies the scales of experts, those of olmoe and dbrx do not.
TEST_F(UnusualFiles, ScalesOfChosenExpertsAreApplied) {
  for (const char* architecture : {"qwen3moe", "olmoe", "dbrx"}) {
    tokens_.clear();
    const std::string path = WriteLibrary({.architecture = architecture, .has_experts = true});
    const std::vector<float> logits =
        Logits(Edit(path, "scaled.gguf", QuantizeExperts(6, /*is_widened=*/false)));
    const std::string twice = Edit(path, "twice.gguf", QuantizeExperts(7, /*is_widened=*/false));
    EXPECT_EQ(LargestDifference(logits, Logits(twice)), 0) << architecture;
    const std::vector<float> expected =
        Logits(Edit(path, "wide.gguf", QuantizeExperts(6, /*is_widened=*/true)));
    EXPECT_LE(LargestDifference(logits, expected), 0.3 * StandardDeviation(expected))
        << architecture;
  }
}

// The error for logits without a number names the formats that these rows need.
// Adds tensors of encoders, as files that hold several models have them.
void AddEncoders(GgufEdit& file) {
  file.Add("v.blk.0.attn_q.weight", GGML_TYPE_F16, 64, 64);
  file.Add("v.patch_embd.weight", GGML_TYPE_F32, 16, 64);
  file.Add("a.blk.0.ffn_up.weight", GGML_TYPE_F32, 64, 64);
  file.Add("mm.input_projection.weight", GGML_TYPE_F16, 64, 64);
}

TEST_F(UnusualFiles, EncodersOfPicturesAndSoundsAreLeftOut) {
  for (const char* family : {"llama", "qwen2", "qwen3", "gemma3", "deci"}) {
    const std::string path = WriteRandom({.family = family});
    const std::string with = Edit(path, "with.gguf", AddEncoders);
    const auto model = Load(with);
    ASSERT_NE(model, nullptr) << family;
    EXPECT_EQ(model->description(), Load(path)->description());
    EXPECT_EQ(LargestDifference(Logits(with), Logits(path)), 0) << family;
  }
}

TEST_F(UnusualFiles, EncodersAreLeftOutOfLibllamasModelsToo) {
  for (const LibraryModelOptions& options : {LibraryModelOptions{.architecture = "gemma4"},
                                             {.architecture = "qwen3"},
                                             {.architecture = "qwen3moe", .has_experts = true},
                                             {.architecture = "mistral3"}}) {
    tokens_.clear();
    const std::string path = WriteLibrary(options);
    const std::string with = Edit(path, "with.gguf", AddEncoders);
    EXPECT_EQ(LargestDifference(Logits(with), Logits(path)), 0) << NameOf(options);
    auto edit = GgufEdit::Open(with);
    ASSERT_TRUE(edit.ok());
    const auto parts = edit->SaveInParts(folder_.File("parts"), 3);
    ASSERT_TRUE(parts.ok()) << parts.status().ToString();
    EXPECT_EQ(LargestDifference(Logits(*parts), Logits(path)), 0) << NameOf(options) << ", parts";
  }
}

// Appends a copy of the last block, with its scales or without, as one that predicts a further
// token.
void AddUnreadBlock(GgufEdit& file, bool has_scales) {
  gguf_context* const metadata = file.metadata();
  const auto key = [&](const std::string& name) { return gguf_find_key(metadata, name.c_str()); };
  const std::string family = gguf_get_val_str(metadata, key("general.architecture"));
  const uint32_t blocks = gguf_get_val_u32(metadata, key(family + ".block_count"));
  const uint32_t width = gguf_get_val_u32(metadata, key(family + ".embedding_length"));
  const std::string last = fmt::format("blk.{}.", blocks - 1);
  const std::string added = fmt::format("blk.{}.", blocks);
  for (const std::string& name : file.names()) {
    if (!name.starts_with(last) || (!has_scales && name.ends_with("scale"))) continue;
    const ggml_tensor* tensor = file.tensor(name);
    const std::string copy_name = added + name.substr(last.size());
    file.Add(copy_name, tensor->type, tensor->ne[0], tensor->ne[1], tensor->ne[2]);
    std::memcpy(file.tensor(copy_name)->data, tensor->data, ggml_nbytes(tensor));
  }
  file.Add(added + "nextn.eh_proj.weight", GGML_TYPE_F32, 2 * int64_t{width}, width);
  if (has_scales) file.Add(added + "nextn.eh_proj.scale", GGML_TYPE_F32, 1, 1);
  for (const char* norm : {"nextn.enorm.weight", "nextn.hnorm.weight"}) {
    file.Add(added + norm, GGML_TYPE_F32, width, 1);
  }
  gguf_set_val_u32(metadata, (family + ".block_count").c_str(), blocks + 1);
  gguf_set_val_u32(metadata, (family + ".nextn_predict_layers").c_str(), 1);
}

TEST_F(UnusualFiles, ScalesOfABlockThatIsNotReadAreLeftOut) {
  for (const char* architecture : {"glm4moe", "qwen35moe", "qwen3next"}) {
    tokens_.clear();
    const std::string path = WriteLibrary({.architecture = architecture, .has_experts = true});
    const std::vector<float> expected = Logits(path);
    for (const bool has_scales : {false, true}) {
      const std::string with =
          Edit(path, "with.gguf", [&](GgufEdit& file) { AddUnreadBlock(file, has_scales); });
      EXPECT_EQ(LargestDifference(Logits(with), expected), 0) << architecture << has_scales;
    }
  }
}

struct Heads {
  const char* family = "llama";
  int dim = 0;
};
std::ostream& operator<<(std::ostream& out, const Heads& heads) {
  return out << heads.family << heads.dim;
}

class UnusualHeads : public UnusualFiles, public testing::WithParamInterface<Heads> {
 protected:
  std::string Write() {
    const auto [family, dim] = GetParam();
    // libllama's builder of qwen2 takes no width of heads but this.
    const int width = family == std::string("qwen2") ? 4 * dim : 128;
    return WriteRandom({.family = family, .embed_dim = width, .head_dim = dim});
  }
};

TEST_P(UnusualHeads, LogitsAreThoseOfLibllama) {
  const std::string path = Write();
  auto runner = LibllamaRunner::Create({.path = path});
  ASSERT_TRUE(runner.ok()) << runner.status().ToString();
  const auto theirs = (*runner)->Append(tokens_);
  ASSERT_TRUE(theirs.ok()) << theirs.status().ToString();
  EXPECT_GT(StandardDeviation(*theirs), 0.5) << "the model is too dull to show a fault";
  EXPECT_LE(LargestDifference(Logits(path), *theirs), 2e-3 * StandardDeviation(*theirs));
}

TEST_P(UnusualHeads, EveryFormatAndTierHasTheRows) {
  const std::string path = Write();
  const std::vector<float> wide = Logits(path);
  const double deviation = StandardDeviation(wide);
  for (const RowType type : {RowType::kF16, RowType::kBf16, RowType::kF32}) {
    EngineLogitsOptions options = {.engine = {.threads = 2, .kv_type = type}};
    const std::vector<float> plain = Logits(path, options);
    EXPECT_LE(LargestDifference(plain, wide), 0.1 * deviation);
    for (const T1Place place : {T1Place::kHost, T1Place::kFile}) {
      SetTiers(TierSetting{.engine = {.t1 = place}, .shares = {.t0_share = 0.3}}, &options.engine,
               &options.session);
      EXPECT_EQ(LargestDifference(Logits(path, options), plain), 0);
    }
  }
  double last = 0;
  for (const CompressedType type : {CompressedType::kInt8, CompressedType::kInt4,
                                    CompressedType::kInt3, CompressedType::kInt2}) {
    if (!HoldsHeads(type, GetParam().dim)) continue;
    EngineLogitsOptions options = kPlain;
    SetTiers(TierSetting{.engine = {.t1 = T1Place::kNone, .t2_type = type},
                         .shares = {.t2_rows = T2Rows::kOld}},
             &options.engine, &options.session);
    const std::vector<float> logits = Logits(path, options);
    const double difference = LargestDifference(logits, wide);
    EXPECT_LE(difference, type == CompressedType::kInt8 ? 0.1 * deviation : 3 * deviation);
    EXPECT_GE(difference, last) << "fewer bits are no nearer";
    last = difference;
  }
}

// A window without sinks keeps consecutive rows: keys that are turned to earlier positions, in a
// context that is full again and again, change nothing.
TEST_P(UnusualHeads, KeysTurnToOtherPositions) {
  const auto [family, dim] = GetParam();
  const std::string path = Write();
  tokens_ = RandomTokens({.family = family}, 150, 6);
  EngineLogitsOptions options = kPlain;
  options.session.policy = {.name = "streaming", .budget = {Budget::Unit::kRows, 40}, .sinks = 0};
  const std::vector<float> expected = Logits(path, options);
  options.session.context = 64;
  options.session.past_context = PastContext::kReRotate;
  EXPECT_LE(LargestDifference(Logits(path, options), expected), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Sizes, UnusualHeads,
                         testing::Values(Heads{"llama", 18}, Heads{"llama", 20}, Heads{"llama", 40},
                                         Heads{"llama", 100}, Heads{"llama", 120},
                                         Heads{"llama", 258}, Heads{"qwen2", 100},
                                         Heads{"qwen3", 100}, Heads{"gemma3", 100},
                                         Heads{"deci", 100}),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace ebb
