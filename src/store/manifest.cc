#include "src/store/manifest.h"

#include <chrono>
#include <concepts>
#include <stdexcept>
#include <utility>

#include <nlohmann/json.hpp>

namespace ebb::store {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;

class Damaged : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Reads a whole number into `to`. Throws Damaged if it does not fit into T.
template <std::integral T>
void Read(const Json& from, T* to) {
  if (from.is_number_unsigned() && std::in_range<T>(from.get<uint64_t>())) {
    *to = static_cast<T>(from.get<uint64_t>());
  } else if (from.is_number_integer() && !from.is_number_unsigned() &&
             std::in_range<T>(from.get<int64_t>())) {
    *to = static_cast<T>(from.get<int64_t>());
  } else {
    throw Damaged("expected a whole number that is not too large, found " + from.dump());
  }
}

}  // namespace

std::string EncodeManifest(const Manifest& m) {
  const Json json = {{"version", kVersion},
                     {"tenant", m.tenant},
                     {"id", m.id},
                     {"model", m.model},
                     {"policy", m.policy},
                     {"tiers", m.tiers},
                     {"tokens", m.tokens},
                     {"created_ms", m.created_ms},
                     {"used_ms", m.used_ms},
                     {"expires_ms", m.expires_ms},
                     {"in_progress", m.in_progress},
                     {"answer_tokens", m.answer_tokens},
                     {"epoch", m.epoch},
                     {"generation", m.generation},
                     {"bytes", m.bytes},
                     {"chunk_hashes", m.chunk_hashes},
                     {"record_hash", m.record_hash}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<Manifest> DecodeManifest(std::string_view text) {
  const std::string damaged = "the manifest of a stored session is damaged: ";
  try {
    const Json json = Json::parse(text);
    if (json.at("version") != kVersion) {
      return Unsupported("a stored session of another version: expected " +
                         std::to_string(kVersion) + ", found " + json.at("version").dump());
    }
    Manifest m;
    json.at("tenant").get_to(m.tenant);
    json.at("id").get_to(m.id);
    json.at("model").get_to(m.model);
    json.at("policy").get_to(m.policy);
    json.at("tiers").get_to(m.tiers);
    Read(json.at("tokens"), &m.tokens);
    Read(json.at("created_ms"), &m.created_ms);
    Read(json.at("used_ms"), &m.used_ms);
    Read(json.at("expires_ms"), &m.expires_ms);
    json.at("in_progress").get_to(m.in_progress);
    Read(json.at("answer_tokens"), &m.answer_tokens);
    json.at("epoch").get_to(m.epoch);
    json.at("generation").get_to(m.generation);
    Read(json.at("bytes"), &m.bytes);
    const Json& hashes = json.at("chunk_hashes");
    if (!hashes.is_array()) throw Damaged("chunk_hashes is no array");
    for (const Json& hash : hashes) Read(hash, &m.chunk_hashes.emplace_back());
    Read(json.at("record_hash"), &m.record_hash);
    return m;
  } catch (const Json::exception& error) {
    return Corrupt(damaged + error.what());
  } catch (const Damaged& error) {
    return Corrupt(damaged + error.what());
  }
}

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace ebb::store
