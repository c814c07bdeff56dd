#include "src/server/access/api_keys.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sodium.h>

#include "src/base/text/size_text.h"
#include "src/store/plain_name.h"

namespace ebb::server {
namespace {

constexpr size_t kMostFileBytes = size_t{1} << 20;
constexpr uint64_t kMostOfALimit = 1'000'000'000'000;
constexpr std::string_view kBlanks = " \t\r";

// Initializes libsodium once: sodium_init() selects CPU instructions and opens the source of random
// bits.
void BeginSodium() {
  static const int kBegun = sodium_init();
  if (kBegun < 0) std::abort();
}

std::vector<std::string_view> WordsOf(std::string_view line) {
  line = line.substr(0, line.find('#'));
  std::vector<std::string_view> words;
  while (true) {
    line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
    if (line.empty()) return words;
    words.push_back(line.substr(0, line.find_first_of(kBlanks)));
    line.remove_prefix(words.back().size());
  }
}

template <typename T>
bool ParseWhole(std::string_view text, T* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

bool ParseHash(std::string_view hex, KeyHash* hash) {
  if (hex.size() != 2 * hash->size()) return false;
  for (size_t i = 0; i < hash->size(); ++i) {
    unsigned value = 0;
    const char* const digits = hex.data() + 2 * i;
    const auto [end, error] = std::from_chars(digits, digits + 2, value, 16);
    if (error != std::errc() || end != digits + 2) return false;
    (*hash)[i] = static_cast<unsigned char>(value);
  }
  return true;
}

// Parses the value of the option `priorities=`. KeyRing::Parse() adds the line's number to an
// error.
Status ParsePriorities(std::string_view text, KeyLimits* limits) {
  const size_t dots = text.find("..");
  const bool fits = dots != std::string_view::npos &&
                    ParseWhole(text.substr(0, dots), &limits->lowest_priority) &&
                    ParseWhole(text.substr(dots + 2), &limits->highest_priority) &&
                    limits->lowest_priority >= kMostUrgentPriority &&
                    limits->highest_priority <= kLeastUrgentPriority &&
                    limits->lowest_priority <= limits->highest_priority;
  if (fits) return OkStatus();
  return InvalidArgument("priorities",
                         fmt::format("expected two numbers from {} to {}, as in 0..2, "
                                     "found \"{}\"",
                                     kMostUrgentPriority, kLeastUrgentPriority, text));
}

Status ParseOption(std::string_view word, ApiKey* key) {
  if (word == "admin") {
    key->is_admin = true;
    return OkStatus();
  }
  const size_t equals = std::min(word.find('='), word.size());
  const std::string_view name = word.substr(0, equals);
  const std::string_view value = word.substr(std::min(equals + 1, word.size()));
  if (name == "priorities") return ParsePriorities(value, &key->limits);
  const std::pair<std::string_view, std::optional<uint64_t>*> numbers[] = {
      {"concurrent", &key->limits.concurrent},
      {"requests-per-minute", &key->limits.requests_per_minute},
      {"tokens-per-minute", &key->limits.tokens_per_minute}};
  for (const auto& [known, number] : numbers) {
    if (name != known) continue;
    uint64_t parsed = 0;
    if (!ParseWhole(value, &parsed) || parsed < 1 || parsed > kMostOfALimit) {
      return InvalidArgument(
          std::string(name),
          fmt::format("expected a number from 1 to {}, found \"{}\"", kMostOfALimit, value));
    }
    *number = parsed;
    return OkStatus();
  }
  return InvalidArgument(
      fmt::format("expected admin, concurrent=N, requests-per-minute=N, "
                  "tokens-per-minute=N or priorities=A..B, found \"{}\"",
                  word));
}

Result<ApiKey> ParseKey(const std::vector<std::string_view>& words) {
  ApiKey key = {.name = std::string(words[0])};
  if (!IsKeyName(key.name)) {
    return InvalidArgument(fmt::format(
        "expected a name of up to 64 letters, digits, '.', '_' and '-', found \"{}\"", key.name));
  }
  // The message does not quote the word, because it may be the key itself by mistake.
  if (words.size() < 2 || !ParseHash(words[1], &key.hash)) {
    return InvalidArgument("expected the SHA-256 of the key after its name, 64 hex digits");
  }
  std::vector<std::string_view> names;
  for (size_t i = 2; i < words.size(); ++i) {
    EBB_RETURN_IF_ERROR(ParseOption(words[i], &key));
    const std::string_view name = words[i].substr(0, words[i].find('='));
    if (std::ranges::count(names, name) > 0) {
      return InvalidArgument(std::string(name), "is given twice");
    }
    names.push_back(name);
  }
  return key;
}

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  [[nodiscard]] int get() const { return descriptor_; }

 private:
  const int descriptor_;
};

Status SystemError(const std::string& path, std::string_view what) {
  const int error = errno;
  const std::string message = fmt::format("{} {}: {}", what, path, std::strerror(error));
  return error == ENOENT ? NotFound(message) : IoError(message);
}

Status CheckPermissions(int descriptor, const std::string& path) {
  struct stat info = {};
  if (fstat(descriptor, &info) != 0) return SystemError(path, "cannot stat");
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument(
        fmt::format("{}: expected a regular file of keys, found another kind", path));
  }
  constexpr mode_t kOpenToOthers = S_IRWXO | S_IWGRP;
  if ((info.st_mode & kOpenToOthers) == 0) return OkStatus();
  return InvalidArgument(
      fmt::format("{0}: others can read or change the file of keys (mode "
                  "{1:03o}); `chmod 600 {0}` closes it",
                  path, info.st_mode & 0777));
}

Result<std::string> ReadAll(int descriptor, const std::string& path) {
  std::string text;
  char block[4096];
  while (true) {
    const ssize_t size = read(descriptor, block, sizeof(block));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return SystemError(path, "cannot read");
    if (size == 0) return text;
    text.append(block, static_cast<size_t>(size));
    if (text.size() > kMostFileBytes) {
      return InvalidArgument(fmt::format("{}: expected at most {} of keys, found more", path,
                                         SizeText(kMostFileBytes)));
    }
  }
}

std::string Hex(const KeyHash& hash) {
  std::string hex;
  for (const unsigned char byte : hash) hex += fmt::format("{:02x}", byte);
  return hex;
}

std::string RandomKey() {
  BeginSodium();
  unsigned char bytes[32];
  randombytes_buf(bytes, sizeof(bytes));
  constexpr int kVariant = sodium_base64_VARIANT_URLSAFE_NO_PADDING;
  char text[sodium_base64_ENCODED_LEN(sizeof(bytes), kVariant)];
  sodium_bin2base64(text, sizeof(text), bytes, sizeof(bytes), kVariant);
  return fmt::format("ebb-{}", text);
}

}  // namespace

bool IsKeyName(std::string_view name) {
  constexpr size_t kMost = 64;
  return store::IsPlainName(name, kMost, "._-");
}

KeyHash HashKey(std::string_view text) {
  BeginSodium();
  KeyHash hash = {};
  crypto_hash_sha256(hash.data(), reinterpret_cast<const unsigned char*>(text.data()), text.size());
  return hash;
}

Result<KeyRing> KeyRing::Parse(std::string_view text, std::string_view source) {
  KeyRing ring;
  for (size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::vector<std::string_view> words = WordsOf(line);
    if (words.empty()) continue;
    const auto wrong = [&](std::string_view message) {
      return InvalidArgument(fmt::format("{}, line {}: {}", source, number, message));
    };
    Result<ApiKey> key = ParseKey(words);
    if (!key.ok()) return wrong(key.status().Text());
    for (const auto& other : ring.keys_) {
      if (other->name == key->name)
        return wrong(fmt::format("a second key is named \"{}\"", key->name));
      if (other->hash == key->hash) {
        return wrong(fmt::format("\"{}\" has the same key as \"{}\"", key->name, other->name));
      }
    }
    ring.keys_.push_back(std::make_shared<const ApiKey>(*std::move(key)));
  }
  return ring;
}

Result<KeyRing> KeyRing::Read(const std::string& path) {
  const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return SystemError(path, "cannot open");
  EBB_RETURN_IF_ERROR(CheckPermissions(file.get(), path));
  EBB_ASSIGN_OR_RETURN(const std::string text, ReadAll(file.get(), path));
  EBB_ASSIGN_OR_RETURN(KeyRing ring, Parse(text, path));
  if (ring.keys_.empty()) return InvalidArgument(fmt::format("{}: the file has no key", path));
  return ring;
}

std::shared_ptr<const ApiKey> KeyRing::Find(std::string_view text) const {
  const KeyHash hash = HashKey(text);
  std::shared_ptr<const ApiKey> found;
  for (const auto& key : keys_) {
    if (sodium_memcmp(hash.data(), key->hash.data(), hash.size()) == 0) found = key;
  }
  return found;
}

std::shared_ptr<const ApiKey> KeyRing::Named(std::string_view name) const {
  const auto found =
      std::ranges::find_if(keys_, [&](const auto& key) { return key->name == name; });
  return found == keys_.end() ? nullptr : *found;
}

bool KeyRing::has_admin() const {
  return std::ranges::any_of(keys_, [](const auto& key) { return key->is_admin; });
}

Result<std::string> AddNewKey(const std::string& path, const std::string& name, bool is_admin) {
  if (!IsKeyName(name)) {
    return InvalidArgument(fmt::format(
        "expected a name of up to 64 letters, digits, '.', '_' and '-', found \"{}\"", name));
  }
  const File file(open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (file.get() < 0) return SystemError(path, "cannot open");
  EBB_RETURN_IF_ERROR(CheckPermissions(file.get(), path));
  EBB_ASSIGN_OR_RETURN(const std::string text, ReadAll(file.get(), path));
  EBB_ASSIGN_OR_RETURN(const KeyRing there, KeyRing::Parse(text, path));
  if (there.Named(name) != nullptr) {
    return InvalidArgument(fmt::format("{} already has a key named \"{}\"", path, name));
  }
  const std::string key = RandomKey();
  const bool ends_with_line = text.empty() || text.back() == '\n';
  const std::string line = fmt::format("{}{} {}{}\n", ends_with_line ? "" : "\n", name,
                                       Hex(HashKey(key)), is_admin ? " admin" : "");
  if (write(file.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size())) return key;
  const Status failed = SystemError(path, "cannot write to");
  // Truncates the file to its old size after a failed write, because an incomplete line would make
  // the file invalid.
  if (ftruncate(file.get(), static_cast<off_t>(text.size())) != 0) {
    return SystemError(path, "cannot mend");
  }
  return failed;
}

}  // namespace ebb::server
