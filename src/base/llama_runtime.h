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

// InstructionSet names an instruction set, and says whether ggml was compiled for it and whether
// the processor has it.
struct InstructionSet {
  const char* name;
  bool is_needed = false;
  bool is_there = false;
};
// Checks that the processor has all instructions that ggml was compiled for. Errors: Unsupported,
// naming the missing instructions, for a program that was built for another machine; ggml would end
// the process with SIGILL.
[[nodiscard]] Status CheckProcessor();
[[nodiscard]] Status CheckInstructionSets(std::span<const InstructionSet> sets);

// Names the instruction sets and the backends that ggml computes with, in one line.
[[nodiscard]] std::string InstructionsInUse();

// LlamaErrorScope collects, on its thread while it lives, the errors that ggml and libllama log.
// Their functions only return null; the reason is in the log alone.
class LlamaErrorScope {
 public:
  LlamaErrorScope();
  ~LlamaErrorScope();
  LlamaErrorScope(const LlamaErrorScope&) = delete;
  LlamaErrorScope& operator=(const LlamaErrorScope&) = delete;

  // Returns the first error, without its line break; a generic phrase if none was logged.
  [[nodiscard]] std::string FirstError() const;
  // Returns all errors in one line; empty if none was logged.
  [[nodiscard]] std::string AllErrors() const;

 private:
  friend struct LlamaLog;
  std::string errors_;
  LlamaErrorScope* outer_;
};

}  // namespace ebb

#endif  // EBB_BASE_LLAMA_RUNTIME_H_
