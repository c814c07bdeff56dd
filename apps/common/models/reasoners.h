// Lists the reasoning models on the hub that `ebb pull --list` and docs/user/models.md suggest.
#ifndef EBB_APPS_PULL_REASONERS_H_
#define EBB_APPS_PULL_REASONERS_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "apps/common/models/model_name.h"
#include "ebb/fit.h"

namespace ebb::cli {

// Reasoner describes a reasoning model that ebb is known to run, with the sizes that decide its
// memory.
struct Reasoner {
  std::string_view name;  // that ParseModelName() takes
  std::string_view description;
  std::string_view licence;
  uint64_t bytes = 0;  // of its file at the hub
  // num_layers and the members below come from the model's config.json; the table of
  // docs/user/models.md is computed from them.
  int num_layers = 0;
  int num_q_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 128;
  int embed_dim = 0;
  int feed_forward_dim = 0;  // of a mixture: of all experts that a token chooses
  int vocab_size = 0;
  int trained_context = 0;
};

// Returns the suggested reasoning models, smallest file first.
[[nodiscard]] std::span<const Reasoner> Reasoners();
// Returns the model of that name, or null.
[[nodiscard]] const Reasoner* FindReasoner(std::string_view name);
// Returns the model of that repository, and of that format if the name has one, or null.
[[nodiscard]] const Reasoner* FindReasoner(const ModelName& name);

// kTypicalProgramBytes is what `ebb fit` measures as FitModel::program_bytes for
// Qwen2.5-Coder-1.5B, whose tokenizer has 151,936 tokens.
inline constexpr uint64_t kTypicalProgramBytes = uint64_t{72} << 20;

// Returns the sizes that `ebb fit` counts with, from the members of `reasoner` alone, without the
// model's file. The whole file counts as weights.
[[nodiscard]] FitModel FitModelFor(const Reasoner& reasoner);
// Returns the bytes that a conversation of `context` tokens takes with the full cache.
[[nodiscard]] uint64_t MemoryAt(const Reasoner& reasoner, int context);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_REASONERS_H_
