#include "src/base/llama_runtime.h"

#include <fmt/format.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <llama.h>

#include <mutex>

namespace ebb {

struct LlamaLog {
  static thread_local LlamaErrorScope* current;

  static void Write(ggml_log_level level, const char* text, void* /*unused*/) {
    if (level == GGML_LOG_LEVEL_ERROR && current != nullptr) current->errors_ += text;
  }
};

thread_local LlamaErrorScope* LlamaLog::current = nullptr;

void InitLlamaRuntime() {
  static std::once_flag once;
  std::call_once(once, [] {
    llama_log_set(LlamaLog::Write, nullptr);
    llama_backend_init();
  });
}

Status CheckInstructionSets(std::span<const InstructionSet> sets) {
  std::string missing;
  for (const InstructionSet& set : sets) {
    if (!set.is_needed || set.is_there) continue;
    missing += (missing.empty() ? "" : ", ") + std::string(set.name);
  }
  if (missing.empty()) return OkStatus();
  return Unsupported(fmt::format(
      "this program was built for a processor with {}, which this one has not; build it "
      "here, or with -DEBB_NATIVE=OFF for any with AVX2, FMA and F16C",
      missing));
}

Status CheckProcessor() {
#if defined(__x86_64__)
  const InstructionSet sets[] = {
    {"AVX", ggml_cpu_has_avx() != 0, __builtin_cpu_supports("avx") != 0},
    {"AVX2", ggml_cpu_has_avx2() != 0, __builtin_cpu_supports("avx2") != 0},
    {"FMA", ggml_cpu_has_fma() != 0, __builtin_cpu_supports("fma") != 0},
    {"BMI2", ggml_cpu_has_bmi2() != 0, __builtin_cpu_supports("bmi2") != 0},
    {"AVX512", ggml_cpu_has_avx512() != 0, __builtin_cpu_supports("avx512f") != 0},
    {"AVX512_VBMI", ggml_cpu_has_avx512_vbmi() != 0, __builtin_cpu_supports("avx512vbmi") != 0},
    {"AVX512_VNNI", ggml_cpu_has_avx512_vnni() != 0, __builtin_cpu_supports("avx512vnni") != 0},
    {"AVX512_BF16", ggml_cpu_has_avx512_bf16() != 0, __builtin_cpu_supports("avx512bf16") != 0},
#if !defined(__clang__)
    {"F16C", ggml_cpu_has_f16c() != 0, __builtin_cpu_supports("f16c") != 0},
    {"AVX_VNNI", ggml_cpu_has_avx_vnni() != 0, __builtin_cpu_supports("avxvnni") != 0},
#endif
  };
  return CheckInstructionSets(sets);
#else
  return OkStatus();
#endif
}

std::string InstructionsInUse() {
  InitLlamaRuntime();
  return llama_print_system_info();
}

LlamaErrorScope::LlamaErrorScope() : outer_(LlamaLog::current) {
  InitLlamaRuntime();
  LlamaLog::current = this;
}

LlamaErrorScope::~LlamaErrorScope() { LlamaLog::current = outer_; }

std::string LlamaErrorScope::FirstError() const {
  const std::string line = errors_.substr(0, errors_.find('\n'));
  return line.empty() ? "no reason was given" : line;
}

std::string LlamaErrorScope::AllErrors() const {
  std::string all;
  for (const char c : errors_) {
    const bool is_blank = c == ' ' || c == '\n';
    if (is_blank && (all.empty() || all.back() == ' ')) continue;
    all += is_blank ? ' ' : c;
  }
  while (all.ends_with(' ')) all.pop_back();
  return all;
}

}  // namespace ebb
