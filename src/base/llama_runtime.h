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

// InstructionSet names an instruction set, and records whether ggml was compiled for it and whether
// the processor has it.
struct InstructionSet {
  const char* name;
  bool is_needed = false;
  bool is_there = false;
};
// Checks that the processor has all instructions for which ggml was compiled; without them ggml
// would end the process with SIGILL. Errors: Unsupported, naming the missing instructions.
[[nodiscard]] Status CheckProcessor();
[[nodiscard]] Status CheckInstructionSets(std::span<const InstructionSet> sets);

// Returns one line with the instruction sets and the backends that ggml uses.
[[nodiscard]] std::string InstructionsInUse();

// LlamaErrorScope collects the errors that ggml and libllama log on its thread while it exists.
// Their functions only return null on failure; the reason is only in the log.
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
