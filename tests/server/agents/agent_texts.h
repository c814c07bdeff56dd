// Texts and tool schemas with the sizes and the structure of those that coding agents send; their
// words are random letters. The same seed gives the same texts.
#ifndef EBB_TESTS_SERVER_AGENTS_AGENT_TEXTS_H_
#define EBB_TESTS_SERVER_AGENTS_AGENT_TEXTS_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

#include <nlohmann/json.hpp>

namespace ebb::server {

// Stands in a text for a high surrogate without its low one, which a JSON library cannot hold.
// WithLoneSurrogates() puts the escape there.
inline constexpr const char* kLoneSurrogate = "@LONE-SURROGATE@";

class AgentTexts {
 public:
  explicit AgentTexts(uint64_t seed) : random_(seed) {}

  // 0 to n - 1.
  int Draw(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  // Lines of words. The size is exact, as in the next two.
  std::string Prose(size_t num_bytes);
  // Numbered lines, as agents show a file.
  std::string File(size_t num_bytes);
  // One run without a blank, such as base64 is.
  std::string Blob(size_t num_bytes);
  // A tool {"name", "description", "schema"} whose JSON has about so many bytes.
  nlohmann::json Tool(const std::string& name, size_t num_bytes);

 private:
  std::string Word();
  nlohmann::json Property(int kind);

  std::mt19937_64 random_;
};

[[nodiscard]] std::string WithLoneSurrogates(std::string json);

}  // namespace ebb::server

#endif  // EBB_TESTS_SERVER_AGENTS_AGENT_TEXTS_H_
