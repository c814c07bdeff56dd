#include "src/model/family.h"

#include <fmt/format.h>
#include <ggml.h>

#include <array>

namespace ebb {
namespace {

using enum Presence;

// Biases of the q, k and v projections are optional in every family.
constexpr std::array kFamilies = {
    ModelFamily{.name = "llama",
                .description = "Llama, SmolLM2, Mistral, R1-Distill-Llama",
                .rope_mode = GGML_ROPE_TYPE_NORMAL,
                .output_bias = kOptional,
                .qk_norm = kNever,
                .rope_factors = kOptional},
    ModelFamily{.name = "qwen2",
                .description = "Qwen2, Qwen2.5, R1-Distill-Qwen",
                .rope_mode = GGML_ROPE_TYPE_NEOX,
                .output_bias = kNever,
                .qk_norm = kNever,
                .rope_factors = kNever},
    ModelFamily{.name = "qwen3",
                .description = "Qwen3",
                .rope_mode = GGML_ROPE_TYPE_NEOX,
                .output_bias = kNever,
                .qk_norm = kAlways,
                .rope_factors = kNever},
    ModelFamily{.name = "gemma3",
                .description = "Gemma 3",
                .rope_mode = GGML_ROPE_TYPE_NEOX,
                .output_bias = kNever,
                .qk_norm = kAlways,
                .rope_factors = kNever,
                .post_norms = kAlways,
                .gate = Gate::kGelu,
                .scales_embeddings = true,
                .has_windows = true},
    ModelFamily{.name = "deci",
                .description = "DeciLM, whose layers differ in their kv heads",
                .rope_mode = GGML_ROPE_TYPE_NORMAL,
                .output_bias = kOptional,
                .qk_norm = kNever,
                .rope_factors = kOptional},
};

}  // namespace

std::span<const ModelFamily> ModelFamilies() { return kFamilies; }

Result<const ModelFamily*> FindModelFamily(std::string_view name) {
  std::string names;
  for (const ModelFamily& family : kFamilies) {
    if (family.name == name) return &family;
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", family.name, family.description);
  }
  return Unsupported(
      fmt::format("model family \"{}\" is not supported; supported are {}", name, names));
}

}  // namespace ebb
