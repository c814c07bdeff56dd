#include "src/base/llama_runtime.h"

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
