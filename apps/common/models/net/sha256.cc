#include "apps/common/models/net/sha256.h"

#include <algorithm>
#include <array>

#include <sodium/crypto_hash_sha256.h>

namespace ebb::cli {

struct Sha256::State {
  crypto_hash_sha256_state state;
};

Sha256::Sha256() : state_(std::make_unique<State>()) { Reset(); }
Sha256::~Sha256() = default;

void Sha256::Reset() { crypto_hash_sha256_init(&state_->state); }

void Sha256::Update(std::string_view bytes) {
  crypto_hash_sha256_update(&state_->state, reinterpret_cast<const unsigned char*>(bytes.data()),
                            bytes.size());
}

std::string Sha256::Finish() {
  std::array<unsigned char, crypto_hash_sha256_BYTES> hash = {};
  crypto_hash_sha256_final(&state_->state, hash.data());
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : hash) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string Sha256Of(std::string_view bytes) {
  Sha256 sha256;
  sha256.Update(bytes);
  return sha256.Finish();
}

bool LooksLikeSha256(std::string_view text) {
  constexpr size_t kDigits = 64;
  return text.size() == kDigits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
         });
}

}  // namespace ebb::cli
