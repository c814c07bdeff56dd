// Renders the chat template of a model by the common library of llama.cpp. That library promises no
// stable interface, so only chat.cc and answer_syntax.cc include it.
#ifndef EBB_MODEL_CHAT_CHAT_H_
#define EBB_MODEL_CHAT_CHAT_H_

#include <memory>
#include <string>
#include <vector>

#include "ebb/chat.h"
#include "ebb/status.h"
#include "src/base/threads/mutex.h"
#include "src/model/chat/special_texts.h"

struct llama_model;

namespace ebb {

// ChatTemplate is a template that was parsed and analysed.
class ChatTemplate {
 public:
  // Parses a template. source: Jinja; empty: the model's own template. model: for the texts of its
  // BOS and EOS tokens; may be null if there is a source; need not outlive the call. Errors:
  // kUnsupported (the model has no template, or the template exceeds limits); kCorrupt (it does not
  // parse).
  static Result<std::unique_ptr<ChatTemplate>> Parse(const llama_model* model,
                                                     const std::string& source);
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // Renders a request. Errors: those of Model::FormatChat(). Each template serves one thread at a
  // time.
  [[nodiscard]] Result<ChatPrompt> Render(const ChatRequest& request) const;
  [[nodiscard]] bool TakesTools() const;

 private:
  ChatTemplate();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// ModelChat holds the template of one model. It parses the template at the first call, and again
// for each thread that calls while others render. Thread safety: any thread may call; no call waits
// for another call's rendering.
class ModelChat {
 public:
  // Makes an object that has not parsed the template yet. REQUIRES: the model outlives it. source:
  // see ModelOptions::chat_template.
  ModelChat(const llama_model* model, std::string source);
  [[nodiscard]] const std::string& source() const { return source_; }
  [[nodiscard]] Result<ChatPrompt> Format(const ChatRequest& request);
  // Returns whether the template takes tools; see Model::TakesTools().
  [[nodiscard]] bool TakesTools();
  [[nodiscard]] const SpecialTexts& specials() const { return specials_; }

 private:
  // Takes a parsed template that no other thread uses, or parses one.
  [[nodiscard]] Result<std::unique_ptr<ChatTemplate>> Take();

  const llama_model* const model_;
  const std::string source_;
  const SpecialTexts specials_;
  Mutex mutex_;
  std::vector<std::unique_ptr<ChatTemplate>> idle_ EBB_GUARDED_BY(mutex_);
  Status failure_ EBB_GUARDED_BY(mutex_);  // why the template does not parse
};

}  // namespace ebb

#endif  // EBB_MODEL_CHAT_CHAT_H_
