// Any bytes as a conversation: refused, or one whose bytes are read back as they are written.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include "ebb/generate.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kMaxInputBytes = size_t{1} << 20;
  if (size > kMaxInputBytes) return 0;
  const auto read = ebb::DecodeConversation({reinterpret_cast<const char*>(data), size});
  if (!read.ok()) {
    if (read.status().code() != ebb::StatusCode::kCorrupt) std::abort();
    return 0;
  }
  const std::string written = ebb::EncodeConversation(*read);
  const auto again = ebb::DecodeConversation(written);
  if (!again.ok() || written.size() != size || ebb::EncodeConversation(*again) != written) {
    std::abort();
  }
  return 0;
}
