// Whether a request for an answer makes sense by itself, before any template sees it.
#ifndef EBB_MODEL_CHAT_CHAT_REQUEST_H_
#define EBB_MODEL_CHAT_CHAT_REQUEST_H_

#include "ebb/chat.h"
#include "ebb/status.h"

namespace ebb {

// Errors: kInvalidArgument, which names the field.
[[nodiscard]] Status CheckRequest(const ChatRequest& request);

// Whether the answer may call a tool.
[[nodiscard]] bool MayCall(const ChatRequest& request);

}  // namespace ebb

#endif  // EBB_MODEL_CHAT_CHAT_REQUEST_H_
