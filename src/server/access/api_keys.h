// KeyRing has the API keys of a server with their limits, from a file with a line for each key:
//
//   NAME SHA256-IN-HEX [OPTION ...]
//
// The file contains the hash of a key, never the key itself. Options: `admin`; `concurrent=N`
// requests at a time; `requests-per-minute=N`; `tokens-per-minute=N`, of prompts and answers;
// `priorities=A..B` that its requests may have. `#` begins a comment.
//
// A key is 256 random bits, so that a hash without salt and stretching does not reveal it.
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

using KeyHash = std::array<unsigned char, 32>;  // a SHA-256

inline constexpr int kMostUrgentPriority = -2;
inline constexpr int kLeastUrgentPriority = 2;

// KeyLimits holds the limits of a key. nullopt: no limit.
struct KeyLimits {
  std::optional<uint64_t> concurrent = {};
  std::optional<uint64_t> requests_per_minute = {};
  std::optional<uint64_t> tokens_per_minute = {};
  // Holds the most urgent priority that the key's requests may have; lower numbers are more urgent.
  int lowest_priority = kMostUrgentPriority;
  int highest_priority = kLeastUrgentPriority;

  friend bool operator==(const KeyLimits&, const KeyLimits&) = default;
};

struct ApiKey {
  std::string name;
  KeyHash hash = {};
  bool is_admin = false;  // may see and end others' requests, and read /metrics
  KeyLimits limits;
};

// Returns the name of a request's tenant. Sessions and cached prompts of different tenants are kept
// apart. `key` is the request's key; null if the server has no keys.
[[nodiscard]] inline std::string TenantOf(const std::shared_ptr<const ApiKey>& key) {
  return key == nullptr ? "" : key->name;
}

class KeyRing {
 public:
  // Parses the text of a file of keys. `source` names the file in messages. Errors:
  // InvalidArgument, with the number of the line.
  static Result<KeyRing> Parse(std::string_view text, std::string_view source);
  // Reads a file of keys. Errors: those of Parse(); NotFound; Io; InvalidArgument (no key; no
  // regular file; users other than its owner and its group can read it, or users other than its
  // owner can write to it).
  static Result<KeyRing> Read(const std::string& path);

  // Returns the key with the hash of `text`; null if there is none. Compares with all keys in
  // constant time, so that the duration reveals no key.
  [[nodiscard]] std::shared_ptr<const ApiKey> Find(std::string_view text) const;
  // Returns whether a key of the ring is an admin's.
  [[nodiscard]] bool has_admin() const;
  [[nodiscard]] size_t size() const { return keys_.size(); }
  // Returns the key called `name`, or null.
  [[nodiscard]] std::shared_ptr<const ApiKey> Named(std::string_view name) const;

 private:
  std::vector<std::shared_ptr<const ApiKey>> keys_;
};

// Returns whether `name` can be a key's name: 1 to 64 letters, digits, '.', '_' and '-'.
[[nodiscard]] bool IsKeyName(std::string_view name);
[[nodiscard]] KeyHash HashKey(std::string_view text);

// Makes a random key called `name` and appends its line to the file, which is created for its owner
// alone if it does not exist. Returns the key, which is stored nowhere. Errors: those of Read();
// Io; InvalidArgument (`name` is no valid name or is in use).
[[nodiscard]] Result<std::string> AddNewKey(const std::string& path, const std::string& name,
                                            bool is_admin = false);

}  // namespace ebb::server

#endif  // EBB_SERVER_ACCESS_API_KEYS_H_
