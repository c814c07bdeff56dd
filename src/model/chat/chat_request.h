// Checks whether a request for an answer is valid by itself, before a template sees it.
#ifndef EBB_MODEL_CHAT_CHAT_REQUEST_H_
#define EBB_MODEL_CHAT_CHAT_REQUEST_H_

#include "ebb/chat.h"
#include "ebb/status.h"

namespace ebb {

// Checks a request. Errors: kInvalidArgument, which names the field.
[[nodiscard]] Status CheckRequest(const ChatRequest& request);

// Returns whether the answer may call a tool.
[[nodiscard]] bool MayCall(const ChatRequest& request);

}  // namespace ebb

#endif  // EBB_MODEL_CHAT_CHAT_REQUEST_H_
