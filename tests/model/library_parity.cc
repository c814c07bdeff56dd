#include "tests/model/library_parity.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "ebb/engine.h"
#include "ebb/model.h"
#include "tests/support/engine/engine_logits.h"
#include "tests/support/engine/libllama_runner.h"
#include "tests/support/logits.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

constexpr int kTokens = 128;

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

}  // namespace

Result<LibraryParity> CompareWithLibllama(const LibraryModelOptions& options) {
  LibraryParity parity;
  const TempFolder folder;
  const std::string path = folder.File("model.gguf");
  parity.fixture = WriteLibraryModel(options, path);
  if (!parity.fixture.ok()) return parity;
  const auto model = Model::Load({.path = path, .graph = GraphSource::kLibrary});
  parity.load = model.status();
  if (!model.ok()) return parity;
  std::mt19937 random(7);
  std::vector<Token> tokens(kTokens);
  for (Token& token : tokens) {
    token = static_cast<Token>(random() % (*model)->shape().vocab_size);
  }
  EBB_ASSIGN_OR_RETURN(auto runner, LibllamaRunner::Create({.path = path, .context = 256}));
  EBB_ASSIGN_OR_RETURN(const std::vector<float> expected, runner->Append(tokens));
  EngineLogitsOptions ours = {.num_prefill = 96};
  ours.engine = {.threads = 2, .kv_type = RowType::kF32, .prefill_chunk = 40};
  EBB_ASSIGN_OR_RETURN(const std::vector<float> found, EngineLogits(*model, tokens, ours));
  parity.error = NormalizedError(expected, found);
  parity.deviation = StandardDeviation(expected);
  return parity;
}

}  // namespace ebb
