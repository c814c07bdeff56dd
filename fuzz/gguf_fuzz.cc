// A GGUF file of any bytes gives a model that can tokenize and take a step, or an error.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "ebb/engine.h"
#include "ebb/model.h"

namespace {

constexpr size_t kMaxInputBytes = size_t{1} << 20;

// A file in memory that has a path.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size) : fd_(memfd_create("gguf", MFD_CLOEXEC)) {
    if (fd_ < 0 || write(fd_, data, size) != static_cast<ssize_t>(size)) std::abort();
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

void UseText(const ebb::Model& model) {
  using ebb::Model;
  const auto tokens = model.Tokenize("<|im_start|>user\nab\xc3\xa9 \xff<|im_end|>",
                                     Model::AddBos::kAsModelSays, Model::Specials::kParse);
  if (tokens.ok()) {
    for (const ebb::Token token : *tokens) {
      if (token < 0 || token >= model.shape().vocab_size) std::abort();
    }
  }
  for (int token = 0; token < model.shape().vocab_size; ++token) {
    (void)model.TokenText(token, Model::ControlTokens::kShow);
    (void)model.EndsGeneration(token);
  }
  const ebb::ChatMessage message = {.role = "user", .content = "ab"};
  (void)model.FormatChat({&message, 1}, Model::Thinking::kModelDefault);
}

void TakeSteps(const std::shared_ptr<const ebb::Model>& model) {
  auto engine = ebb::Engine::Create(model, {.threads = 1, .kv_cap_bytes = uint64_t{64} << 20});
  if (!engine.ok()) return;
  auto session = (*engine)->OpenSession({.context = 4});
  if (!session.ok()) return;
  const std::vector<ebb::Token> prompt(2, model->shape().vocab_size - 1);
  if ((*session)->Prefill(prompt).ok()) (void)(*session)->Decode(0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > kMaxInputBytes) return 0;
  const MemoryFile file(data, size);
  const auto model = ebb::Model::Load({.path = file.path()});
  if (!model.ok()) {
    if (model.status().message().empty()) std::abort();
    return 0;
  }
  UseText(**model);
  TakeSteps(*model);
  return 0;
}
