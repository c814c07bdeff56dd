// The chat template of a model, through the common library of llama.cpp. That library promises no
// stable interface: chat.cc and answer_syntax.cc are the files that see it.
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

// A template that was parsed and analysed.
class ChatTemplate {
 public:
  // source: Jinja; empty: the model's own. model: for the texts of its BOS and EOS tokens; may be
  // null when there is a source. It must outlive the call alone.
  // Errors: kUnsupported (the model has no template, or this one goes beyond its limits); kCorrupt
  // (it does not parse).
  static Result<std::unique_ptr<ChatTemplate>> Parse(const llama_model* model,
                                                     const std::string& source);
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // Errors: what Model::FormatChat() says. One thread at a time for each template.
  [[nodiscard]] Result<ChatPrompt> Render(const ChatRequest& request) const;
  [[nodiscard]] bool TakesTools() const;

 private:
  ChatTemplate();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The template of one model, parsed when it is first asked for, and once more for each thread that
// asks while others render. Thread safety: any thread; no call waits for another one's rendering.
class ModelChat {
 public:
  // The model must outlive it. source: see ModelOptions::chat_template.
  ModelChat(const llama_model* model, std::string source);
  [[nodiscard]] const std::string& source() const { return source_; }
  [[nodiscard]] Result<ChatPrompt> Format(const ChatRequest& request);
  // See Model::TakesTools().
  [[nodiscard]] bool TakesTools();
  [[nodiscard]] const SpecialTexts& specials() const { return specials_; }

 private:
  // A template that no other thread has.
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
