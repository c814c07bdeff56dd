// How far llama.cpp's quantised caches are from its f16 cache, measured as `ebb-lab fidelity
// --dequantize` measures T2: the same windows of the same text, weights held as F32, KL in nats.
//   ebb_llama_cache_fidelity MODEL.gguf TEXT.txt WINDOWS [THREADS [WINDOW_TOKENS]]
// Needs room for the weights as F32 in the folder for temporary files.
#include <fmt/format.h>
#include <llama.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ebb/lab/fidelity.h"
#include "ebb/model.h"
#include "lab/eval/fidelity_statistics.h"
#include "tests/support/engine/libllama_runner.h"
#include "tests/support/temp_folder.h"
#include "tests/tools/study_text.h"

namespace ebb {
namespace {

constexpr size_t kBatchTokens = 64;

struct Input {
  std::string model, text;
  size_t windows = 0;
  int threads = 2;
  int window_tokens = kStudyWindowTokens;
};

Status WriteAsF32(const std::string& from, const std::string& to) {
  llama_model_quantize_params params = llama_model_quantize_default_params();
  params.ftype = LLAMA_FTYPE_ALL_F32;
  params.allow_requantize = true;
  if (llama_model_quantize(from.c_str(), to.c_str(), &params) != 0) {
    return Internal(fmt::format("libllama cannot write {} as F32", from));
  }
  return OkStatus();
}

// Batches are no shortcut for the cache: it is quantised before it is read.
Status CompareWindow(std::span<const Token> window, LibllamaRunner* full, LibllamaRunner* setting,
                     FidelitySums* sums) {
  full->Forget();
  setting->Forget();
  const size_t vocab_size = full->vocab_size();
  for (size_t first = 0; first < window.size(); first += kBatchTokens) {
    const auto batch = window.subspan(first, std::min(kBatchTokens, window.size() - first));
    EBB_ASSIGN_OR_RETURN(const std::vector<float> a, full->Append(batch));
    EBB_ASSIGN_OR_RETURN(const std::vector<float> b, setting->Append(batch));
    if (first < kStudyPromptTokens) continue;
    for (size_t i = 0; i < batch.size(); ++i) {
      sums->Add(CompareLogits(std::span(a).subspan(i * vocab_size, vocab_size),
                              std::span(b).subspan(i * vocab_size, vocab_size), std::nullopt));
    }
  }
  sums->EndWindow();
  return OkStatus();
}

Status Run(const Input& input) {
  EBB_ASSIGN_OR_RETURN(const auto model, Model::Load({.path = input.model}));
  EBB_ASSIGN_OR_RETURN(const auto windows,
                       ReadWindows(*model, input.text, input.windows, input.window_tokens));
  const TempFolder folder;
  const std::string path = folder.File("f32.gguf");
  EBB_RETURN_IF_ERROR(WriteAsF32(input.model, path));
  LibllamaOptions options = {.path = path,
                             .threads = input.threads,
                             .context = input.window_tokens,
                             .kv_type = RowType::kF16,
                             .flash_attention = LibllamaOptions::FlashAttention::kOn};
  EBB_ASSIGN_OR_RETURN(const auto full, LibllamaRunner::Create(options));
  for (const ggml_type type : {GGML_TYPE_Q8_0, GGML_TYPE_Q5_1, GGML_TYPE_Q5_0, GGML_TYPE_Q4_0}) {
    options.quantised_cache = type;
    EBB_ASSIGN_OR_RETURN(const auto setting, LibllamaRunner::Create(options));
    const FidelityOptions statistics;
    FidelitySums sums(statistics.block_tokens);
    for (const auto& window : windows) {
      EBB_RETURN_IF_ERROR(CompareWindow(window, full.get(), setting.get(), &sums));
    }
    const FidelityReport report = sums.Report(statistics);
    fmt::print("{}: mean KL {:.4g} ({:.4g} - {:.4g}) nats, {:.1f} % the same likeliest token, ",
               ggml_type_name(type), report.mean_kl.value, report.mean_kl.interval.low,
               report.mean_kl.interval.high, 100 * report.top1.value);
    fmt::print("over {} tokens of {} windows\n", report.tokens, report.windows);
    std::fflush(stdout);
  }
  return OkStatus();
}

}  // namespace
}  // namespace ebb

int main(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(stderr, "usage: {} MODEL.gguf TEXT.txt WINDOWS [THREADS [WINDOW_TOKENS]]\n",
               argv[0]);
    return 2;
  }
  ebb::Input input = {.model = argv[1], .text = argv[2]};
  input.windows = std::strtoul(argv[3], nullptr, 10);
  if (argc > 4) input.threads = std::atoi(argv[4]);
  if (argc > 5) input.window_tokens = std::atoi(argv[5]);
  const ebb::Status status = ebb::Run(input);
  if (!status.ok()) fmt::print(stderr, "{}\n", status.ToString());
  return status.ok() ? 0 : 1;
}
