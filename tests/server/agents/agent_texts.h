// AgentTexts makes texts and tool schemas with the sizes and the structure of those of coding
// agents, from words of random letters. The same seed gives the same texts.
#ifndef EBB_TESTS_SERVER_AGENTS_AGENT_TEXTS_H_
#define EBB_TESTS_SERVER_AGENTS_AGENT_TEXTS_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

#include <nlohmann/json.hpp>

namespace ebb::server {

// kLoneSurrogate stands in a text for a high surrogate without its low one, which a JSON library
// cannot hold. WithLoneSurrogates() replaces it by the escape.
inline constexpr const char* kLoneSurrogate = "@LONE-SURROGATE@";

class AgentTexts {
 public:
  explicit AgentTexts(uint64_t seed) : random_(seed) {}

  // Returns a random number from 0 to n - 1.
  int Draw(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  // Returns lines of words, exactly `num_bytes` long, as the next two functions.
  std::string Prose(size_t num_bytes);
  // Returns numbered lines, as agents show a file.
  std::string File(size_t num_bytes);
  // Returns one run without a blank, like base64.
  std::string Blob(size_t num_bytes);
  // Returns a tool {"name", "description", "schema"} whose JSON has about `num_bytes` bytes.
  nlohmann::json Tool(const std::string& name, size_t num_bytes);

 private:
  std::string Word();
  nlohmann::json Property(int kind);

  std::mt19937_64 random_;
};

[[nodiscard]] std::string WithLoneSurrogates(std::string json);

}  // namespace ebb::server

#endif  // EBB_TESTS_SERVER_AGENTS_AGENT_TEXTS_H_
