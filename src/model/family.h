// The families of models that one decoder graph serves. A new family of the same architecture is
// one row of the table in family.cc.
#ifndef EBB_MODEL_FAMILY_H_
#define EBB_MODEL_FAMILY_H_

#include <span>
#include <string>
#include <string_view>

#include "ebb/status.h"

namespace ebb {

// Whether a tensor belongs to a family.
enum class Presence { kNever, kOptional, kAlways };

// What is multiplied with the other half of the feed-forward layer's input.
enum class Gate { kSilu, kGelu };

struct ModelFamily {
  std::string_view name;  // general.architecture
  std::string_view description;
  int rope_mode;          // GGML_ROPE_TYPE_*: which elements of a head turn together
  Presence output_bias;   // of the attention's output projection
  Presence qk_norm;       // RMS norm of each query and key head before RoPE
  Presence rope_factors;  // rope_freqs.weight: one divisor per frequency (llama3)
  Presence post_norms = Presence::kNever;  // of what attention and feed-forward add
  Gate gate = Gate::kSilu;
  bool scales_embeddings = false;  // by the square root of their width
  // Some layers see the last tokens alone: the file says how many, and by default in which layers.
  bool has_windows = false;
};

[[nodiscard]] std::span<const ModelFamily> ModelFamilies();
// Unsupported, listing the families, when there is none of this name.
[[nodiscard]] Result<const ModelFamily*> FindModelFamily(std::string_view name);

}  // namespace ebb

#endif  // EBB_MODEL_FAMILY_H_
