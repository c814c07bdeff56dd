// Describes how the answers to a prompt are parsed, for the common library's parser of a template's
// format.
#ifndef EBB_MODEL_CHAT_ANSWER_SYNTAX_H_
#define EBB_MODEL_CHAT_ANSWER_SYNTAX_H_

#include <memory>
#include <string>

#include <chat.h>

#include "ebb/chat.h"

namespace ebb {

struct AnswerSyntax {
  common_chat_parser_params params;
  bool may_call = false;    // some of the answer may be calls
  std::string answer_mark;  // ChannelMarks::answer
};

// Makes the syntax. params: the library's analysis of a template and a request.
[[nodiscard]] std::shared_ptr<const AnswerSyntax> SyntaxFrom(const common_chat_params& params,
                                                             const ChatPrompt& prompt,
                                                             bool may_call);

// Keeps the common library from printing. Errors that it would log are thrown as well.
void SilenceLog();

}  // namespace ebb

#endif  // EBB_MODEL_CHAT_ANSWER_SYNTAX_H_
