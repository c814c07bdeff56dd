// The functions of llama.cpp's common.cpp that chat templates, grammars and the log call. That file needs the sampling
// and speculative sources too, and takes as long to compile as all that calls it.
#include "common.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

void string_replace_all(std::string& s, const std::string& search, const std::string& replace) {
  if (search.empty()) return;
  std::string result;
  result.reserve(s.size());
  size_t begin = 0;
  for (size_t end; (end = s.find(search, begin)) != std::string::npos; begin = end + search.size()) {
    result.append(s, begin, end - begin);
    result += replace;
  }
  result.append(s, begin, std::string::npos);
  s = std::move(result);
}

std::string string_join(const std::vector<std::string>& values, const std::string& separator) {
  std::string result;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) result += separator;
    result += values[i];
  }
  return result;
}

std::vector<std::string> string_split(const std::string& str, const std::string& delimiter) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end; (end = str.find(delimiter, begin)) != std::string::npos; begin = end + delimiter.size()) {
    parts.push_back(str.substr(begin, end - begin));
  }
  parts.push_back(str.substr(begin));
  return parts;
}

std::string string_repeat(const std::string& str, size_t n) {
  std::string result;
  result.reserve(str.size() * n);
  for (size_t i = 0; i < n; ++i) result += str;
  return result;
}

bool tty_can_use_colors() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  if (no_color != nullptr && *no_color != '\0') return false;
  if (term != nullptr && std::strcmp(term, "dumb") == 0) return false;
  return isatty(STDOUT_FILENO) || isatty(STDERR_FILENO);
}

std::vector<llama_token> common_tokenize(const llama_vocab* vocab, const std::string& text, bool add_special,
                                         bool parse_special) {
  std::vector<llama_token> tokens(text.size() + 2 * add_special);
  const auto tokenize = [&] {
    return llama_tokenize(vocab, text.data(), text.size(), tokens.data(), tokens.size(), add_special,
                          parse_special);
  };
  int32_t count = tokenize();
  if (count == INT32_MIN) throw std::runtime_error("a text has more tokens than an int32_t can count");
  if (count < 0) {  // minus the number that there is room needed for
    tokens.resize(-count);
    count = tokenize();
  }
  tokens.resize(count);
  return tokens;
}

std::string common_token_to_piece(const llama_vocab* vocab, llama_token token, bool special) {
  std::string piece(15, '\0');
  int32_t count = llama_token_to_piece(vocab, token, piece.data(), piece.size(), 0, special);
  if (count < 0) {  // minus the length
    piece.resize(-count);
    count = llama_token_to_piece(vocab, token, piece.data(), piece.size(), 0, special);
  }
  piece.resize(count);
  return piece;
}
