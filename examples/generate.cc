// The library in one page: load a model, open a session under a policy, generate, read what the
// cache did. Usage: generate MODEL.gguf [PROMPT]
#include <cstdio>

#include "ebb/engine.h"
#include "ebb/generate.h"
#include "ebb/model.h"

namespace {

ebb::Status Run(const char* path, const char* prompt) {
  EBB_ASSIGN_OR_RETURN(auto model, ebb::Model::Load({.path = path}));
  EBB_ASSIGN_OR_RETURN(auto engine, ebb::Engine::Create(model, {.threads = 2}));

  // At most 192 tokens stay visible: the first four and the most recent ones.
  ebb::SessionOptions options;
  EBB_RETURN_IF_ERROR(ebb::ParsePolicy("streaming", &options.policy));
  EBB_ASSIGN_OR_RETURN(options.policy.budget, ebb::ParseBudget("192"));
  EBB_ASSIGN_OR_RETURN(auto session, engine->OpenSession(options));

  EBB_ASSIGN_OR_RETURN(auto tokens, model->Tokenize(prompt, ebb::Model::AddBos::kAsModelSays,
                                                    ebb::Model::Specials::kAsText));
  EBB_RETURN_IF_ERROR(session->Prefill(tokens).status);
  EBB_ASSIGN_OR_RETURN(auto sampler, ebb::Sampler::Create(*model, {.temperature = 0}));

  const auto result = ebb::Generate(
      *session, *sampler, {.max_tokens = 256, .on_text = [](std::string_view text, ebb::TextPart) {
                             return std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
                           }});
  EBB_RETURN_IF_ERROR(result.error);

  const auto cache = session->accounting();
  std::printf("\n%d tokens, %.1f a second; %lld rows stay (%zu KiB), %lld were evicted\n",
              result.generated_tokens, result.decode_steps / result.seconds,
              static_cast<long long>(cache.tiers[0].rows), cache.tiers[0].page_bytes / 1024,
              static_cast<long long>(cache.rows_evicted));
  return ebb::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::puts("usage: generate MODEL.gguf [PROMPT]");
    return 0;
  }
  const ebb::Status status = Run(argv[1], argc > 2 ? argv[2] : "The tide ebbs because");
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
