// What T2 loses in each of many number formats, with f32 queries and exact arithmetic otherwise:
//   ebb_t2_study MODEL.gguf TEXT.txt WINDOWS WINDOW [THREADS]
// Teacher-forced over WINDOWS windows of 2,048 tokens, weights held as F32, rows as f32. All rows
// but the first 64 of a window, the next 4 and the last WINDOW are rounded. KL in nats to the
// unrounded cache; all formats step in one batch. `ebb fidelity` measures the real T2.
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
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
constexpr Position kSinks = 4;

struct Input {
  std::string model, text;
  size_t windows = 0;
  Position window = 0;
  int threads = 2;
};

// A sequence whose rows are rounded behind its window.
struct Setting {
  StudiedFormat format;
  std::unique_ptr<Session> session;
  FidelitySums sums{FidelityOptions().block_tokens};

  [[nodiscard]] std::span<float> Row(int layer, int head, Position at, bool is_key) const {
    SequenceCache& cache = Insides::SequenceOf(*session).cache();
    const auto row = cache.Row(layer, head, static_cast<uint32_t>(at));
    auto* floats = reinterpret_cast<float*>(is_key ? row.key : row.value);
    return {floats, static_cast<size_t>(cache.format().head_dim)};
  }

  // `at` leaves the window.
  void Round(const ModelShape& shape, Position at) const {
    const Position first = kPromptTokens + kSinks;
    if (at < first) return;
    const bool channels_end = (at - first + 1) % kChannelRows == 0;
    for (int layer = 0; layer < shape.num_layers; ++layer) {
      for (int head = 0; head < shape.num_kv_heads; ++head) {
        format.value(Row(layer, head, at, false));
        if (format.key != nullptr) format.key(Row(layer, head, at, true));
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

Status StudyWindow(std::span<const Token> window, Position kept, Engine* engine,
                   std::vector<Setting>* settings) {
  std::vector<Session*> sessions;
  EBB_ASSIGN_OR_RETURN(const auto full, engine->OpenSession({}));
  sessions.push_back(full.get());
  for (Setting& setting : *settings) {
    EBB_ASSIGN_OR_RETURN(setting.session, engine->OpenSession({}));
    sessions.push_back(setting.session.get());
  }
  for (Session* session : sessions) {
    EBB_RETURN_IF_ERROR(session->Prefill(window.first(kPromptTokens)));
  }
  for (size_t at = kPromptTokens; at < window.size(); ++at) {
    const std::vector<Token> tokens(sessions.size(), window[at]);
    EBB_RETURN_IF_ERROR(engine->DecodeBatch(sessions, tokens));
    for (Setting& setting : *settings) {
      setting.Round(engine->model().shape(), static_cast<Position>(at) - kept);
      setting.sums.Add(CompareLogits(full->logits(), setting.session->logits(), std::nullopt));
    }
    if (at % 64 == 0) fmt::print(stderr, "\r{} of {} tokens", at, window.size());
  }
  for (Setting& setting : *settings) {
    setting.sums.EndWindow();
    setting.session.reset();
  }
  return OkStatus();
}

Status Run(const Input& input) {
  EBB_ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model,
                       Model::Load({.path = input.model, .weights = WeightMode::kDequantize}));
  EBB_ASSIGN_OR_RETURN(const auto engine,
                       Engine::Create(model, {.threads = input.threads, .kv_type = RowType::kF32}));
  EBB_ASSIGN_OR_RETURN(const auto windows, ReadWindows(*model, input.text, input.windows));
  std::vector<Setting> settings;
  for (StudiedFormat& format : StudiedFormats()) {
    settings.push_back({.format = std::move(format), .session = nullptr});
  }
  for (const std::vector<Token>& window : windows) {
    EBB_RETURN_IF_ERROR(StudyWindow(window, input.window, engine.get(), &settings));
  }
  fmt::print("\n| format | bits | mean KL | largest |\n|---|---|---|---|\n");
  for (const Setting& setting : settings) {
    const FidelityReport report = setting.sums.Report(FidelityOptions());
    fmt::print("| {} | {} | {:.2g} ({:.2g} - {:.2g}) | {:.2g} |\n", setting.format.name,
               setting.format.bits_per_element, report.mean_kl.value, report.mean_kl.interval.low,
               report.mean_kl.interval.high, report.max_kl);
  }
  return OkStatus();
}

}  // namespace
}  // namespace ebb

int main(int argc, char** argv) {
  if (argc < 5) {
    fmt::print(stderr, "usage: {} MODEL.gguf TEXT.txt WINDOWS WINDOW [THREADS]\n", argv[0]);
    return 2;
  }
  ebb::Input input = {.model = argv[1], .text = argv[2]};
  input.windows = std::strtoul(argv[3], nullptr, 10);
  input.window = std::atoi(argv[4]);
  if (argc > 5) input.threads = std::atoi(argv[5]);
  const ebb::Status status = ebb::Run(input);
  if (!status.ok()) fmt::print(stderr, "{}\n", status.ToString());
  return status.ok() ? 0 : 1;
}
