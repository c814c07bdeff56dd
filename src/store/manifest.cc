#include "src/store/manifest.h"

#include <chrono>

#include <nlohmann/json.hpp>

namespace ebb::store {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;

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
    json.at("tokens").get_to(m.tokens);
    json.at("created_ms").get_to(m.created_ms);
    json.at("used_ms").get_to(m.used_ms);
    json.at("expires_ms").get_to(m.expires_ms);
    json.at("in_progress").get_to(m.in_progress);
    json.at("answer_tokens").get_to(m.answer_tokens);
    json.at("epoch").get_to(m.epoch);
    json.at("generation").get_to(m.generation);
    json.at("bytes").get_to(m.bytes);
    json.at("chunk_hashes").get_to(m.chunk_hashes);
    json.at("record_hash").get_to(m.record_hash);
    return m;
  } catch (const Json::exception& error) {
    return Corrupt(std::string("the manifest of a stored session is damaged: ") + error.what());
  }
}

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace ebb::store
