#include "tests/model/library_parity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "ebb/engine.h"
#include "ebb/model.h"
#include "tests/support/engine/engine_logits.h"
#include "tests/support/engine/libllama_runner.h"
#include "tests/support/gguf_edit.h"
#include "tests/support/logits.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

constexpr int kTokens = 128;
constexpr int kContext = 256;
constexpr int kRead = 100;  // tokens before those whose logits a wrong row moves
constexpr int kMostLayers = 32;

double NormalizedError(std::span<const float> expected, std::span<const float> found) {
  if (expected.size() != found.size()) return INFINITY;
  double error = 0, power = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double difference = double(expected[i]) - found[i];
    error += difference * difference;
    power += double(expected[i]) * expected[i];
  }
  return error / power;
}

std::vector<Token> SomeTokens(int vocab_size) {
  std::mt19937 random(7);
  std::vector<Token> tokens(kTokens);
  for (Token& token : tokens) token = static_cast<Token>(random() % vocab_size);
  return tokens;
}

Result<std::vector<float>> LibllamaLogits(const std::string& path,
                                          const std::function<void(std::vector<Token>*)>& change,
                                          int context = kContext) {
  EBB_ASSIGN_OR_RETURN(auto runner, LibllamaRunner::Create({.path = path, .context = context}));
  std::vector<Token> tokens = SomeTokens(runner->vocab_size());
  if (change) change(&tokens);
  return runner->Append(tokens);
}

void Lengthen(ggml_tensor* weight, int64_t rows) {
  auto* values = static_cast<float*>(weight->data);
  for (int64_t i = 0; i < rows * weight->ne[0]; ++i) values[i] *= 1.05F;
}

// Lengthens the queries of each layer; false if the model has none that are known.
bool LengthenQueries(const GgufEdit& file, int num_layers, int64_t query_rows) {
  bool found = false;
  for (int layer = 0; layer < num_layers; ++layer) {
    const auto tensor = [&](const char* name) {
      return file.Find(fmt::format("blk.{}.{}.weight", layer, name));
    };
    // The last one of these that there is comes after the others.
    for (const char* name : {"attn_q_norm", "attn_q_b", "attn_q"}) {
      if (ggml_tensor* const weight = tensor(name); weight != nullptr) {
        Lengthen(weight, ggml_nrows(weight));
        found = true;
        break;
      }
    }
    if (ggml_tensor* const joined = tensor("attn_qkv"); joined != nullptr) {
      Lengthen(joined, std::min(query_rows, joined->ne[1]));
      found = true;
    }
  }
  return found;
}

// Changes a key of 32 bits; false if there is none.
bool ChangeKey(const GgufEdit& file, const std::string& key, uint32_t less) {
  const int64_t id = gguf_find_key(file.metadata(), key.c_str());
  if (id < 0 || gguf_get_kv_type(file.metadata(), id) != GGUF_TYPE_UINT32) return false;
  const uint32_t value = gguf_get_val_u32(file.metadata(), id);
  gguf_set_val_u32(file.metadata(), key.c_str(), value - less);
  return true;
}

bool EnlargeSinks(const GgufEdit& file, int num_layers) {
  bool found = false;
  for (int layer = 0; layer < num_layers; ++layer) {
    ggml_tensor* const sinks = file.Find(fmt::format("blk.{}.attn_sinks.weight", layer));
    if (sinks == nullptr) continue;
    auto* values = static_cast<float*>(sinks->data);
    for (int64_t i = 0; i < ggml_nelements(sinks); ++i) values[i] += 0.2F;
    found = true;
  }
  return found;
}

}  // namespace

Result<std::map<std::string, double>> ErrorsOfFaults(LibraryModelOptions options) {
  options.is_sharp = true;
  const TempFolder folder;
  const std::string path = folder.File("model.gguf"), wrong = folder.File("wrong.gguf");
  EBB_RETURN_IF_ERROR(WriteLibraryModel(options, path));
  EBB_ASSIGN_OR_RETURN(const std::vector<float> right, LibllamaLogits(path, nullptr));
  EBB_ASSIGN_OR_RETURN(const auto model, Model::Load({.path = path}));
  const ModelShape& shape = model->shape();
  const int64_t query_rows = int64_t{shape.num_q_heads} * shape.head_dim;
  const std::string prefix = options.architecture + ".";
  const std::map<std::string, std::function<bool(const GgufEdit&)>> faults = {
      {"angle",
       [&](const GgufEdit& file) {
         gguf_set_val_f32(file.metadata(), (prefix + "rope.freq_base").c_str(), 10500);
         return true;
       }},
      {"scale",
       [&](const GgufEdit& file) { return LengthenQueries(file, kMostLayers, query_rows); }},
      {"window",
       [&](const GgufEdit& file) {
         return shape.SmallestWindow() > 0 &&
                ChangeKey(file, prefix + "attention.sliding_window", 1);
       }},
      {"sinks", [&](const GgufEdit& file) { return EnlargeSinks(file, kMostLayers); }},
  };
  std::map<std::string, double> errors;
  for (const auto& [name, make] : faults) {
    EBB_ASSIGN_OR_RETURN(const GgufEdit file, GgufEdit::Open(path));
    if (!make(file)) continue;
    EBB_RETURN_IF_ERROR(file.Save(wrong));
    EBB_ASSIGN_OR_RETURN(const std::vector<float> found, LibllamaLogits(wrong, nullptr));
    errors[name] = NormalizedError(right, found);
  }
  EBB_ASSIGN_OR_RETURN(const std::vector<float> found,
                       LibllamaLogits(path, [&](std::vector<Token>* tokens) {
                         (*tokens)[kRead - 8] = ((*tokens)[kRead - 8] + 1) % shape.vocab_size;
                       }));
  const size_t last = size_t{kRead} * shape.vocab_size;
  errors["row"] = NormalizedError(std::span(right).subspan(last), std::span(found).subspan(last));
  return errors;
}

Result<LibraryParity> CompareWithLibllama(LibraryModelOptions options, int context) {
  options.is_sharp = true;
  LibraryParity parity;
  const TempFolder folder;
  const std::string path = folder.File("model.gguf");
  parity.fixture = WriteLibraryModel(options, path);
  if (!parity.fixture.ok()) return parity;
  const auto model = Model::Load({.path = path, .context = context});
  parity.load = model.status();
  if (!model.ok()) return parity;
  const std::vector<Token> tokens = SomeTokens((*model)->shape().vocab_size);
  EBB_ASSIGN_OR_RETURN(const std::vector<float> expected,
                       LibllamaLogits(path, nullptr, context > 0 ? context : kContext));
  EngineLogitsOptions ours = {.num_prefill = 96};
  ours.engine = {.threads = 2, .kv_type = RowType::kF32, .prefill_chunk = 40};
  EBB_ASSIGN_OR_RETURN(const std::vector<float> found, EngineLogits(*model, tokens, ours));
  parity.error = NormalizedError(expected, found);
  parity.deviation = StandardDeviation(expected);
  return parity;
}

}  // namespace ebb
