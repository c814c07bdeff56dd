#include "src/session/column_check.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "ebb/version.h"
#include "src/model/loaded/loaded_model.h"
#include "src/session/session_impl.h"

namespace ebb {
namespace {

// kSteps lists the numbers of tokens of the steps that the check compares with steps of one.
constexpr std::array kSteps = {1, 2, 8, kMostTokensWithGuesses};
constexpr std::string_view kSame = " same", kDiffer = " differ";

// Names all that the bits of steps depend on.
std::string KeyOf(const EngineCore& core) {
  return fmt::format("{:016x} {:016x} {} {} {}", core.model->fingerprint(),
                     HashOfKernels(core.model->loaded()), core.kernel->name,
                     RowTypeName(core.options.kv_type), EBB_VERSION);
}

// Returns the result that the file has under `key`.
std::optional<bool> FindResult(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::optional<bool> result;
  for (std::string line; std::getline(file, line);) {
    if (line == key + std::string(kSame)) result = true;
    if (line == key + std::string(kDiffer)) result = false;
  }
  return result;
}

void KeepResult(const std::string& path, const std::string& key, bool are_same) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code ignored;
  if (!folder.empty()) std::filesystem::create_directory(folder, ignored);
  // A result that cannot be kept is computed again.
  std::ofstream(path, std::ios::app) << key << (are_same ? kSame : kDiffer) << '\n';
}

// Returns the hash of the logits after each token of steps of kSteps or, of the same tokens, of
// steps of one. Errors: those of sessions.
Result<uint64_t> HashOf(const std::shared_ptr<EngineCore>& core, bool of_one) {
  SessionOptions options = {.context = std::min(64, core->model->shape().trained_context)};
  EBB_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, Internals::Open(core, options));
  GuessingDecoder decoder(&Internals::SequenceOf(*session));
  const auto vocab_size = static_cast<uint64_t>(core->model->shape().vocab_size);
  std::vector<Token> step;
  size_t num_done = 0;  // of the step
  decoder.GuessBy([&](int most) {
    const std::span<const Token> left = std::span(step).subspan(num_done);
    const auto guesses = left.first(std::min(left.size(), static_cast<size_t>(most)));
    return std::vector<Token>(guesses.begin(), guesses.end());
  });
  ShownLogits& logits = Internals::Of(*session).logits;
  uint64_t num_tokens = 0;
  for (const int size : kSteps) {
    step.clear();
    while (static_cast<int>(step.size()) < size) {
      step.push_back(static_cast<Token>(++num_tokens * 2654435761 % vocab_size));
    }
    for (num_done = 0; num_done < step.size();) {
      const Token token = step[num_done++];
      EBB_RETURN_IF_ERROR(decoder.Decode(token, nullptr, of_one ? 0 : size - 1, &logits).status);
    }
  }
  if (!of_one && decoder.report().accepted == 0) {
    return Unsupported("the sequence has no room for guesses");
  }
  return logits.hash;
}

// Takes the result from the file or, if it has none, compares steps and keeps the result there.
// Errors: those of sessions.
Result<bool> AreSame(const std::shared_ptr<EngineCore>& core) {
  const std::string& path = core->options.checks_file;
  const std::string key = KeyOf(*core);
  if (const std::optional<bool> kept = FindResult(path, key)) return *kept;
  EBB_ASSIGN_OR_RETURN(const uint64_t alone, HashOf(core, /*of_one=*/true));
  EBB_ASSIGN_OR_RETURN(const uint64_t together, HashOf(core, /*of_one=*/false));
  KeepResult(path, key, alone == together);
  return alone == together;
}

}  // namespace

std::string CheckColumns(const std::shared_ptr<EngineCore>& core) {
  if (core->options.checks_file.empty()) return "";
  if (!core->columns_are_same.has_value()) {
    const Result<bool> are_same = AreSame(core);
    if (!are_same.ok()) {
      return "the check of steps with guesses could not run: " + are_same.status().message();
    }
    core->columns_are_same = *are_same;
  }
  if (*core->columns_are_same) return "";
  return "a check of the model found that steps of several tokens round differently than steps of "
         "one here";
}

}  // namespace ebb
