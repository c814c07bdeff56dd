// A conversation on the library alone: each turn reads what is new, and the answer is printed with
// its thought told apart. Usage: chat MODEL.gguf QUESTION...
#include <cstdio>
#include <string>
#include <vector>

#include "ebb/engine.h"
#include "ebb/generate.h"

namespace {

ebb::Status Run(const char* path, const std::vector<std::string>& questions) {
  EBB_ASSIGN_OR_RETURN(auto model, ebb::Model::Load({.path = path}));
  // Lossless, with what ebb chooses: a draft of a few hundred rows, all others in a file.
  ebb::EngineOptions engine_options;
  ebb::SessionOptions session_options;
  engine_options.tiers.emplace();
  session_options.lossless.emplace();
  session_options.policy = ebb::DefaultDraft({});
  EBB_ASSIGN_OR_RETURN(auto engine, ebb::Engine::Create(model, engine_options));
  EBB_ASSIGN_OR_RETURN(auto session, engine->OpenSession(session_options));

  ebb::Conversation talk = {.request = {.messages = {{"system", "Be brief."}}}};
  for (const std::string& question : questions) {
    const ebb::ChatMessage message = {"user", question};
    EBB_ASSIGN_OR_RETURN(const ebb::Turn turn, ebb::BeginTurn(*model, talk, {&message, 1}));
    EBB_ASSIGN_OR_RETURN(const auto unread, ebb::KeepPrefix(turn.tokens, session.get()));
    EBB_RETURN_IF_ERROR(session->Prefill(unread).status);
    EBB_ASSIGN_OR_RETURN(const auto sampler, ebb::SamplerFor(turn, *model, {}));
    const auto result =
        ebb::Generate(*session, *sampler, ebb::OptionsFor(turn, {.max_tokens = 512}));
    EBB_RETURN_IF_ERROR(result.error);
    EBB_ASSIGN_OR_RETURN(const ebb::ChatMessage answer, ebb::AnswerMessage(turn.prompt, result));
    ebb::EndTurn(turn, result, ebb::SavedState(*sampler), &talk);
    if (!answer.reasoning_content.empty()) {
      std::printf("(%s)\n", answer.reasoning_content.c_str());
    }
    std::printf("%s\n[%zu tokens read, %zu kept]\n", answer.content.c_str(), unread.size(),
                turn.tokens.size() - unread.size());
  }
  return ebb::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::puts("usage: chat MODEL.gguf QUESTION...");
    return 0;
  }
  const ebb::Status status = Run(argv[1], {argv + 2, argv + argc});
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
