// Keys of a server: who may ask, how much, and as what. A file holds a line for each key,
//
//   NAME SHA256-IN-HEX [OPTION ...]
//
// with the hash of the key and never the key itself. Options: `admin`; `concurrent=N` requests at a
// time; `requests-per-minute=N`; `tokens-per-minute=N`, of prompts and answers; `priorities=A..B`
// that its requests may have. `#` begins a comment.
//
// A key is 256 random bits, so that a hash without salt and stretching gives nothing away.
#ifndef EBB_SERVER_ACCESS_API_KEYS_H_
#define EBB_SERVER_ACCESS_API_KEYS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/status.h"

namespace ebb::server {

using KeyHash = std::array<unsigned char, 32>;  // SHA-256

inline constexpr int kMostUrgentPriority = -2;
inline constexpr int kLeastUrgentPriority = 2;

// Nothing: no limit.
struct KeyLimits {
  std::optional<uint64_t> concurrent = {};
  std::optional<uint64_t> requests_per_minute = {};
  std::optional<uint64_t> tokens_per_minute = {};
  int lowest_priority = kMostUrgentPriority;  // as a number: the most urgent
  int highest_priority = kLeastUrgentPriority;

  friend bool operator==(const KeyLimits&, const KeyLimits&) = default;
};

struct ApiKey {
  std::string name;
  KeyHash hash = {};
  bool is_admin = false;  // may see and end what others asked for, and read /metrics
  KeyLimits limits;
};

// Returns the name of a tenant, whose sessions and prompts are kept apart from other tenants'.
// key: of a request; null: the server has none.
[[nodiscard]] inline std::string TenantOf(const std::shared_ptr<const ApiKey>& key) {
  return key == nullptr ? "" : key->name;
}

class KeyRing {
 public:
  // `source` names the file in messages. Errors: InvalidArgument, with the number of the line.
  static Result<KeyRing> Parse(std::string_view text, std::string_view source);
  // Errors: those of Parse(); NotFound; Io; InvalidArgument (no key, no plain file; users beside
  // its owner and its group can read it, or others than its owner can write to it).
  static Result<KeyRing> Read(const std::string& path);

  // The key whose hash is that of `text`, or null. Takes as long whichever key it is.
  [[nodiscard]] std::shared_ptr<const ApiKey> Find(std::string_view text) const;
  [[nodiscard]] size_t size() const { return keys_.size(); }
  // Null: there is none of this name.
  [[nodiscard]] std::shared_ptr<const ApiKey> Named(std::string_view name) const;

 private:
  std::vector<std::shared_ptr<const ApiKey>> keys_;
};

// 1 to 64 letters, digits, '.', '_' and '-'.
[[nodiscard]] bool IsKeyName(std::string_view name);
[[nodiscard]] KeyHash HashKey(std::string_view text);

// Makes a key called `name` and adds its line to the file, which is made, for its owner alone, if
// there is none. The result is the key, which is written nowhere. Errors: those of Read(); Io;
// InvalidArgument (no such name can be; it is taken).
[[nodiscard]] Result<std::string> AddNewKey(const std::string& path, const std::string& name);

}  // namespace ebb::server

#endif  // EBB_SERVER_ACCESS_API_KEYS_H_
