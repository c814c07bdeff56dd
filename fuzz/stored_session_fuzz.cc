// Any bytes as what a store keeps beside a session's rows, its manifest and the record of its
// turns: refused as damaged, or something that is read back as it is written.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "src/server/engine/session_record.h"
#include "src/store/manifest.h"

namespace {

void Expect(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kMaxInputBytes = size_t{1} << 20;
  if (size > kMaxInputBytes) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto manifest = ebb::store::DecodeManifest(bytes);
  if (manifest.ok()) {
    const auto again = ebb::store::DecodeManifest(EncodeManifest(*manifest));
    Expect(again.ok() && *again == *manifest);
  } else {
    const ebb::StatusCode code = manifest.status().code();
    Expect(code == ebb::StatusCode::kCorrupt || code == ebb::StatusCode::kUnsupported);
  }
  const auto record = ebb::server::DecodeRecord(bytes);
  if (record.ok()) {
    const std::string written = EncodeRecord(*record);
    const auto again = ebb::server::DecodeRecord(written);
    Expect(again.ok() && EncodeRecord(*again) == written);
  } else {
    const ebb::StatusCode code = record.status().code();
    Expect(code == ebb::StatusCode::kCorrupt || code == ebb::StatusCode::kUnsupported);
  }
  return 0;
}
