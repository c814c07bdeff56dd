// Computes the SHA-256 of bytes that arrive in pieces.
#ifndef EBB_APPS_PULL_NET_SHA256_H_
#define EBB_APPS_PULL_NET_SHA256_H_

#include <memory>
#include <string>
#include <string_view>

namespace ebb::cli {

// Sha256 computes the SHA-256 of bytes that arrive in pieces.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  // Starts over, as if no byte had been added.
  void Reset();
  void Update(std::string_view bytes);
  // Returns 64 lower-case hexadecimal digits. REQUIRES: Reset() before the next Update().
  [[nodiscard]] std::string Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

[[nodiscard]] std::string Sha256Of(std::string_view bytes);
// Returns whether the text is 64 hexadecimal digits, in either case.
[[nodiscard]] bool LooksLikeSha256(std::string_view text);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_NET_SHA256_H_
