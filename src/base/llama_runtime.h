// Initializes libllama and ggml once per process, and keeps their last error messages.
#ifndef EBB_BASE_LLAMA_RUNTIME_H_
#define EBB_BASE_LLAMA_RUNTIME_H_

#include <span>
#include <string>

#include "ebb/status.h"

namespace ebb {

// Initialises ggml's tables and takes over the log of ggml and libllama, which would otherwise go
// to stderr. Cheap after the first call; any thread may call it.
void InitLlamaRuntime();

// Instructions that ggml was compiled for, and whether the processor has them.
struct InstructionSet {
  const char* name;
  bool is_needed = false;
  bool is_there = false;
};
// Unsupported, naming the missing instructions, where ggml would end the process with SIGILL: a
// program that was built for another machine.
[[nodiscard]] Status CheckProcessor();
[[nodiscard]] Status CheckInstructionSets(std::span<const InstructionSet> sets);

// Names the instruction sets and the backends that ggml computes with, in one line.
[[nodiscard]] std::string InstructionsInUse();

// Collects, in its scope and on its thread, the errors that ggml and libllama log: they return
// null, and the log alone says why.
class LlamaErrorScope {
 public:
  LlamaErrorScope();
  ~LlamaErrorScope();
  LlamaErrorScope(const LlamaErrorScope&) = delete;
  LlamaErrorScope& operator=(const LlamaErrorScope&) = delete;

  // The first error, without its line break; a generic phrase when none was logged.
  [[nodiscard]] std::string FirstError() const;
  // All of them, in one line; empty when none was logged.
  [[nodiscard]] std::string AllErrors() const;

 private:
  friend struct LlamaLog;
  std::string errors_;
  LlamaErrorScope* outer_;
};

}  // namespace ebb

#endif  // EBB_BASE_LLAMA_RUNTIME_H_
