#include "src/session/column_check.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "ebb/version.h"
#include "src/model/loaded/loaded_model.h"
#include "src/session/session_impl.h"

namespace ebb {
namespace {

constexpr int kTokens = 8;
constexpr std::string_view kSame = " same", kDiffer = " differ";

// Names all that the bits of steps depend on.
std::string KeyOf(const EngineCore& core) {
  return fmt::format("{:016x} {} {} {}", core.model->fingerprint(), core.kernel->name,
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

// Returns the hash of the logits after each of kTokens + 1 tokens, of which one step computes all
// but the first, or each has a step of its own. Errors: those of sessions.
Result<uint64_t> HashOf(const std::shared_ptr<EngineCore>& core, bool in_one_step) {
  std::array<Token, kTokens + 1> tokens{};
  const auto vocab_size = static_cast<uint64_t>(core->model->shape().vocab_size);
  for (uint64_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<Token>((i + 1) * 2654435761 % vocab_size);
  }
  SessionOptions options = {.context = std::min(64, core->model->shape().trained_context)};
  EBB_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, Internals::Open(core, options));
  Sequence& sequence = Internals::SequenceOf(*session);
  GuessingDecoder decoder(&sequence);
  size_t next = 0;
  decoder.GuessBy([&](int most) {
    std::vector<Token> guesses;
    for (size_t i = next; in_one_step && i < tokens.size() && most-- > 0; ++i) {
      guesses.push_back(tokens[i]);
    }
    return guesses;
  });
  ShownLogits& logits = Internals::Of(*session).logits;
  for (const Token token : tokens) {
    ++next;
    const int most_guesses = next == 1 ? 0 : kMostTokensWithGuesses;
    EBB_RETURN_IF_ERROR(decoder.Decode(token, nullptr, most_guesses, &logits).status);
  }
  if (in_one_step && decoder.report().accepted == 0) {
    return Unsupported("the sequence has no room for guesses");
  }
  return logits.hash;
}

}  // namespace

const std::string& CheckColumns(const std::shared_ptr<EngineCore>& core) {
  std::optional<std::string>& obstacle = core->columns_differ;
  const std::string& path = core->options.checks_file;
  if (obstacle.has_value()) return *obstacle;
  obstacle = "";
  if (path.empty()) return *obstacle;
  const std::string key = KeyOf(*core);
  std::optional<bool> are_same = FindResult(path, key);
  if (!are_same.has_value()) {
    const Result<uint64_t> alone = HashOf(core, false), together = HashOf(core, true);
    if (!alone.ok() || !together.ok()) return *obstacle;
    are_same = *alone == *together;
    KeepResult(path, key, *are_same);
  }
  if (!*are_same) {
    obstacle = fmt::format(
        "a check of the model found that steps of {} tokens round differently than steps of one "
        "here",
        kTokens);
  }
  return *obstacle;
}

}  // namespace ebb
