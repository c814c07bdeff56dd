// What T2 loses in each of many number formats, with f32 queries and exact arithmetic otherwise:
//   ebb_t2_study MODEL.gguf TEXT.txt WINDOWS WINDOW [TOKENS [EXACT [f32|stored]]]
// Teacher-forced over WINDOWS windows of 2,048 tokens, or their first TOKENS, rows as f32; weights
// held as F32, or as stored: then activations are rounded too, and f16 shows the floor, what any
// change at all gives. All rows but the first EXACT (68) of a window and the last WINDOW are
// rounded. KL in nats to the unrounded cache; all formats step in one batch. `ebb-lab fidelity`
// measures the real T2.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "ebb/engine.h"
#include "ebb/lab/fidelity.h"
#include "ebb/model.h"
#include "lab/eval/fidelity_statistics.h"
#include "src/session/session_impl.h"
#include "tests/tools/study_text.h"
#include "tests/tools/t2_formats.h"

namespace ebb {
namespace {

constexpr Position kPromptTokens = kStudyPromptTokens;

struct Input {
  std::string model, text;
  size_t windows = 0;
  Position window = 0;
  size_t tokens = kStudyWindowTokens;
  Position exact = kPromptTokens + 4;
  WeightMode weights = WeightMode::kDequantize;
};

// A sequence whose rows are rounded behind its window.
struct Setting {
  StudiedFormat format;
  Position exact = 0;  // the first position that is rounded
  std::unique_ptr<Session> session;
  FidelitySums sums{FidelityOptions().block_tokens};
  // Centres of keys in the present window, by layer, head and first position; their rows are exact
  // still.
  std::map<std::tuple<int, int, Position>, std::vector<float>> centres = {};

  [[nodiscard]] std::span<float> Row(int layer, int head, Position at, bool is_key) const {
    SequenceCache& cache = Internals::SequenceOf(*session).cache();
    cache.FindAddresses();
    const auto row = cache.views().Row(layer, head, static_cast<uint32_t>(at));
    auto* floats = reinterpret_cast<float*>(is_key ? row.key : row.value);
    return {floats, static_cast<size_t>(cache.layout().format().head_dim)};
  }

  const std::vector<float>& CentreOf(int layer, int head, Position first) {
    std::vector<float>& centre = centres[{layer, head, first}];
    if (!centre.empty()) return centre;
    centre.resize(Row(layer, head, first, true).size());
    for (Position at = first; at < first + kCentreRows; ++at) {
      const auto key = Row(layer, head, at, true);
      for (size_t i = 0; i < key.size(); ++i) centre[i] += key[i] / kCentreRows;
    }
    return centre;
  }

  void RoundKey(int layer, int head, Position at) {
    const auto key = Row(layer, head, at, true);
    if (format.key_centre == StudiedFormat::Centre::kNone) return format.key(key);
    const bool of_page = format.key_centre == StudiedFormat::Centre::kPage;
    const auto& centre = CentreOf(layer, head, of_page ? at / kCentreRows * kCentreRows : 0);
    for (size_t i = 0; i < key.size(); ++i) key[i] -= centre[i];
    format.key(key);
    for (size_t i = 0; i < key.size(); ++i) key[i] += centre[i];
  }

  // `at` leaves the window.
  void Round(const ModelShape& shape, Position at) {
    if (at < exact) return;
    const bool channels_end = (at - exact + 1) % kChannelRows == 0;
    for (int layer = 0; layer < shape.num_layers; ++layer) {
      for (int head = 0; head < shape.num_kv_heads; ++head) {
        format.value(Row(layer, head, at, false));
        if (format.key != nullptr) RoundKey(layer, head, at);
        if (format.keys_by_channel == nullptr || !channels_end) continue;
        std::vector<std::span<float>> keys;
        for (Position row = at - kChannelRows + 1; row <= at; ++row) {
          keys.push_back(Row(layer, head, row, true));
        }
        format.keys_by_channel(keys);
      }
    }
  }
};

Status StudyWindow(std::span<const Token> window, const Input& input, Engine* engine,
                   std::vector<Setting>* settings) {
  const size_t num_tokens = std::min(window.size(), input.tokens);
  std::vector<Session*> sessions;
  EBB_ASSIGN_OR_RETURN(const auto full, engine->OpenSession({}));
  sessions.push_back(full.get());
  for (Setting& setting : *settings) {
    EBB_ASSIGN_OR_RETURN(setting.session, engine->OpenSession({}));
    sessions.push_back(setting.session.get());
  }
  for (Session* session : sessions) {
    EBB_RETURN_IF_ERROR(session->Prefill(window.first(kPromptTokens)).status);
  }
  for (size_t at = kPromptTokens; at < num_tokens; ++at) {
    const std::vector<Token> tokens(sessions.size(), window[at]);
    EBB_RETURN_IF_ERROR(engine->DecodeBatch(sessions, tokens).status);
    for (Setting& setting : *settings) {
      setting.Round(engine->model().shape(), static_cast<Position>(at) - input.window);
      setting.sums.Add(CompareLogits(full->logits(), setting.session->logits(), std::nullopt));
    }
    if (at % 64 == 0) fmt::print(stderr, "\r{} of {} tokens", at, num_tokens);
  }
  for (Setting& setting : *settings) {
    setting.sums.EndWindow();
    setting.session.reset();
    setting.centres.clear();
  }
  return OkStatus();
}

Status Run(const Input& input) {
  EBB_ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model,
                       Model::Load({.path = input.model, .weights = input.weights}));
  EBB_ASSIGN_OR_RETURN(const auto engine, Engine::Create(model, {.kv_type = RowType::kF32}));
  EBB_ASSIGN_OR_RETURN(const auto windows, ReadWindows(*model, input.text, input.windows));
  std::vector<Setting> settings;
  for (StudiedFormat& format : StudiedFormats()) {
    settings.push_back({.format = std::move(format), .exact = input.exact, .session = nullptr});
  }
  for (const std::vector<Token>& window : windows) {
    EBB_RETURN_IF_ERROR(StudyWindow(window, input, engine.get(), &settings));
  }
  fmt::print(
      "\n| format | bits | mean KL | largest | same likeliest token |\n|---|---|---|---|---|\n");
  for (const Setting& setting : settings) {
    const FidelityReport report = setting.sums.Report(FidelityOptions());
    fmt::print("| {} | {} | {:.2g} ({:.2g} - {:.2g}) | {:.2g} | {:.1f} % |\n", setting.format.name,
               setting.format.bits_per_element, report.mean_kl.value, report.mean_kl.interval.low,
               report.mean_kl.interval.high, report.max_kl, 100 * report.top1.value);
  }
  return OkStatus();
}

}  // namespace
}  // namespace ebb

int main(int argc, char** argv) {
  if (argc < 5) {
    fmt::print(stderr,
               "usage: {} MODEL.gguf TEXT.txt WINDOWS WINDOW [TOKENS [EXACT [f32|stored]]]\n",
               argv[0]);
    return 2;
  }
  ebb::Input input = {.model = argv[1], .text = argv[2]};
  input.windows = std::strtoul(argv[3], nullptr, 10);
  input.window = std::atoi(argv[4]);
  if (argc > 5) input.tokens = std::strtoul(argv[5], nullptr, 10);
  if (argc > 6) input.exact = std::atoi(argv[6]);
  if (argc > 7 && std::string_view(argv[7]) == "stored") {
    input.weights = ebb::WeightMode::kAsStored;
  }
  const ebb::Status status = ebb::Run(input);
  if (!status.ok()) fmt::print(stderr, "{}\n", status.ToString());
  return status.ok() ? 0 : 1;
}
