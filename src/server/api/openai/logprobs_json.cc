#include "src/server/api/openai/logprobs_json.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

namespace ebb::server {
namespace {

// Replaces infinities, which JSON does not have.
double Finite(double logprob) { return std::isfinite(logprob) ? logprob : -9999.0; }

struct Character {
  size_t size = 1;
  bool is_whole = false;
};

// Returns the first character of `text`. Bytes that are no UTF-8 count as JSON decoders see them:
// one U+FFFD for the longest valid beginning of a character.
Character FirstCharacter(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {.size = 1, .is_whole = true};
  if (lead < 0xC2 || lead > 0xF4) return {};
  const size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // Only the second byte has a narrower range, which excludes overlong forms, surrogates, and
  // values beyond U+10FFFF.
  uint8_t least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  uint8_t most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  size_t i = 1;
  for (; i < std::min(size, text.size()) && byte(i) >= least && byte(i) <= most; ++i) {
    least = 0x80;
    most = 0xBF;
  }
  return {.size = i, .is_whole = i == size};
}

std::string NameOf(const std::string& token) {
  bool is_text = true;
  for (size_t i = 0; i < token.size() && is_text;) {
    const Character next = FirstCharacter(std::string_view(token).substr(i));
    is_text = next.is_whole;
    i += next.size;
  }
  if (is_text) return token;
  std::string name = "bytes:";
  for (const char c : token) name += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
  return name;
}

Json Entry(const TokenLogprob& one, const TokenText& text) {
  const std::string token = text(one.token);
  Json bytes = Json::array();
  for (const char c : token) bytes.push_back(static_cast<uint8_t>(c));
  return {{"token", token}, {"logprob", Finite(one.logprob)}, {"bytes", std::move(bytes)}};
}

}  // namespace

void LogprobsTeller::Add(std::vector<AnswerLogprobs> entries) {
  for (AnswerLogprobs& entry : entries) {
    last_end_ = entry.end;
    has_entries_ = true;
    pending_.push_back(std::move(entry));
  }
}

void LogprobsTeller::AddText(std::string_view text) {
  text_ += text;
  const size_t end = num_bytes_ + text_.size();
  if (pending_.empty()) CountTo(has_entries_ ? std::min(last_end_, end) : end);
}

void LogprobsTeller::CountTo(size_t end) {
  size_t at = 0;
  while (at < text_.size()) {
    const size_t size = FirstCharacter(std::string_view(text_).substr(at)).size;
    if (num_bytes_ + at + size > end) break;
    at += size;
    ++num_chars_;
  }
  text_.erase(0, at);
  num_bytes_ += at;
}

void LogprobsTeller::Take(bool is_all, std::vector<ToldLogprobs>* told) {
  while (!pending_.empty()) {
    AnswerLogprobs& next = pending_.front();
    const size_t text_end = num_bytes_ + text_.size();
    const bool is_empty = next.begin == next.end;
    if (!is_all && (is_empty ? next.begin > text_end : next.begin >= text_end)) return;
    CountTo(next.begin);
    told->push_back({.of = std::move(next.of), .offset = num_chars_});
    pending_.pop_front();
  }
}

Json ChatLogprobs(const std::vector<ToldLogprobs>& told, const TokenText& text) {
  Json content = Json::array();
  for (const ToldLogprobs& one : told) {
    Json json = Entry(one.of.chosen, text);
    json["top_logprobs"] = Json::array();
    for (const TokenLogprob& other : one.of.top) json["top_logprobs"].push_back(Entry(other, text));
    content.push_back(std::move(json));
  }
  return {{"content", std::move(content)}};
}

Json TextLogprobs(const std::vector<ToldLogprobs>& told, const TokenText& text) {
  Json json = {{"tokens", Json::array()},
               {"token_logprobs", Json::array()},
               {"top_logprobs", Json::array()},
               {"text_offset", Json::array()}};
  for (const ToldLogprobs& one : told) {
    json["tokens"].push_back(NameOf(text(one.of.chosen.token)));
    json["token_logprobs"].push_back(Finite(one.of.chosen.logprob));
    Json top = Json::object();
    for (const TokenLogprob& other : one.of.top) {
      // emplace() keeps the first of equal names, which is the likeliest.
      top.emplace(NameOf(text(other.token)), Finite(other.logprob));
    }
    json["top_logprobs"].push_back(std::move(top));
    json["text_offset"].push_back(one.offset);
  }
  return json;
}

}  // namespace ebb::server
