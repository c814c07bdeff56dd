#include "apps/common/models/reasoners.h"

#include <algorithm>

namespace ebb::cli {
namespace {

constexpr Reasoner kReasoners[] = {
    {.name = "hf:Qwen/Qwen3-0.6B-GGUF:Q8_0",
     .description = "Qwen3-0.6B, Q8_0",
     .licence = "Apache-2.0",
     .bytes = 639446688,
     .num_layers = 28,
     .num_q_heads = 16,
     .num_kv_heads = 8,
     .embed_dim = 1024,
     .feed_forward_dim = 3072,
     .vocab_size = 151936,
     .trained_context = 40960},
    {.name = "hf:unsloth/DeepSeek-R1-Distill-Qwen-1.5B-GGUF:Q4_K_M",
     .description = "DeepSeek-R1-Distill-Qwen-1.5B, Q4_K_M",
     .licence = "MIT",
     .bytes = 1117321312,
     .num_layers = 28,
     .num_q_heads = 12,
     .num_kv_heads = 2,
     .embed_dim = 1536,
     .feed_forward_dim = 8960,
     .vocab_size = 151936,
     .trained_context = 131072},
    {.name = "hf:Qwen/Qwen3-1.7B-GGUF:Q8_0",
     .description = "Qwen3-1.7B, Q8_0",
     .licence = "Apache-2.0",
     .bytes = 1834426016,
     .num_layers = 28,
     .num_q_heads = 16,
     .num_kv_heads = 8,
     .embed_dim = 2048,
     .feed_forward_dim = 6144,
     .vocab_size = 151936,
     .trained_context = 40960},
    {.name = "hf:ggml-org/SmolLM3-3B-GGUF:Q4_K_M",
     .description = "SmolLM3-3B, Q4_K_M",
     .licence = "Apache-2.0",
     .bytes = 1915305312,
     .num_layers = 36,
     .num_q_heads = 16,
     .num_kv_heads = 4,
     .embed_dim = 2048,
     .feed_forward_dim = 11008,
     .vocab_size = 128256,
     .trained_context = 65536},
    {.name = "hf:Qwen/Qwen3-4B-GGUF:Q4_K_M",
     .description = "Qwen3-4B, Q4_K_M",
     .licence = "Apache-2.0",
     .bytes = 2497280256,
     .num_layers = 36,
     .num_q_heads = 32,
     .num_kv_heads = 8,
     .embed_dim = 2560,
     .feed_forward_dim = 9728,
     .vocab_size = 151936,
     .trained_context = 40960},
    {.name = "hf:unsloth/DeepSeek-R1-Distill-Qwen-7B-GGUF:Q4_K_M",
     .description = "DeepSeek-R1-Distill-Qwen-7B, Q4_K_M",
     .licence = "MIT",
     .bytes = 4683073248,
     .num_layers = 28,
     .num_q_heads = 28,
     .num_kv_heads = 4,
     .embed_dim = 3584,
     .feed_forward_dim = 18944,
     .vocab_size = 152064,
     .trained_context = 131072},
    {.name = "hf:unsloth/DeepSeek-R1-Distill-Llama-8B-GGUF:Q4_K_M",
     .description = "DeepSeek-R1-Distill-Llama-8B, Q4_K_M",
     .licence = "MIT, Llama 3.1",
     .bytes = 4920737216,
     .num_layers = 32,
     .num_q_heads = 32,
     .num_kv_heads = 8,
     .embed_dim = 4096,
     .feed_forward_dim = 14336,
     .vocab_size = 128256,
     .trained_context = 131072},
    {.name = "hf:Qwen/Qwen3-8B-GGUF:Q4_K_M",
     .description = "Qwen3-8B, Q4_K_M",
     .licence = "Apache-2.0",
     .bytes = 5027783488,
     .num_layers = 36,
     .num_q_heads = 32,
     .num_kv_heads = 8,
     .embed_dim = 4096,
     .feed_forward_dim = 12288,
     .vocab_size = 151936,
     .trained_context = 40960},
    {.name = "hf:Qwen/Qwen3-14B-GGUF:Q4_K_M",
     .description = "Qwen3-14B, Q4_K_M",
     .licence = "Apache-2.0",
     .bytes = 9001752960,
     .num_layers = 40,
     .num_q_heads = 40,
     .num_kv_heads = 8,
     .embed_dim = 5120,
     .feed_forward_dim = 17408,
     .vocab_size = 151936,
     .trained_context = 40960},
    {.name = "hf:unsloth/Qwen3-30B-A3B-GGUF:Q4_K_M",
     .description = "Qwen3-30B-A3B, a mixture of experts, Q4_K_M",
     .licence = "Apache-2.0",
     .bytes = 18556686912,
     .num_layers = 48,
     .num_q_heads = 32,
     .num_kv_heads = 4,
     .embed_dim = 2048,
     .feed_forward_dim = 6144,
     .vocab_size = 151936,
     .trained_context = 40960},
    {.name = "hf:Qwen/Qwen3-32B-GGUF:Q4_K_M",
     .description = "Qwen3-32B, Q4_K_M",
     .licence = "Apache-2.0",
     .bytes = 19762149024,
     .num_layers = 64,
     .num_q_heads = 64,
     .num_kv_heads = 8,
     .embed_dim = 5120,
     .feed_forward_dim = 25600,
     .vocab_size = 151936,
     .trained_context = 40960},
};

}  // namespace

std::span<const Reasoner> Reasoners() { return kReasoners; }

const Reasoner* FindReasoner(std::string_view name) {
  const auto* found = std::ranges::find(kReasoners, name, &Reasoner::name);
  return found == std::end(kReasoners) ? nullptr : found;
}

const Reasoner* FindReasoner(const ModelName& name) {
  if (name.source != ModelName::Source::kHub || !name.file.empty()) return nullptr;
  const auto* found = std::ranges::find_if(kReasoners, [&](const Reasoner& reasoner) {
    const auto its = ParseModelName(reasoner.name);
    return its.ok() && its->repo == name.repo && (name.quant.empty() || its->quant == name.quant);
  });
  return found == std::end(kReasoners) ? nullptr : found;
}

FitModel FitModelFor(const Reasoner& reasoner) {
  FitModel model;
  model.shape = {.num_layers = reasoner.num_layers,
                 .num_q_heads = reasoner.num_q_heads,
                 .num_kv_heads = reasoner.num_kv_heads,
                 .head_dim = reasoner.head_dim,
                 .embed_dim = reasoner.embed_dim,
                 .vocab_size = reasoner.vocab_size,
                 .trained_context = reasoner.trained_context};
  model.feed_forward_dim = reasoner.feed_forward_dim;
  model.weight_bytes = reasoner.bytes;
  model.program_bytes = kTypicalProgramBytes;
  return model;
}

uint64_t MemoryAt(const Reasoner& reasoner, int context) {
  FitRequest request;
  request.SetContext(context, kPromptsOfConversation);
  const auto bytes = FitRequestInto(FitModelFor(reasoner), request);
  return bytes.ok() ? bytes->Memory() : 0;
}

}  // namespace ebb::cli
