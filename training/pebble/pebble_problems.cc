// Writes problems for the trainer, or what they are like.
//
//   pebble_problems vocabulary                        the tokens, as JSON
//   pebble_problems text SEED FIRST COUNT             problems to read
//   pebble_problems statistics SEED FIRST COUNT       lengths, families, distances
//   pebble_problems stream SEED FIRST STRIDE BLOCK FACTS_PERCENT DRILL_PERCENT BRIEF_PERCENT
//     endless blocks of BLOCK problems: those from FIRST * BLOCK, (FIRST + STRIDE) * BLOCK, ...
//     A problem is 4 int32 (tokens, question tokens, family, farthest lookup), then its tokens as
//     uint16, then a byte per token: its kind. So many of the problems are drills of facts, drills
//     with sentences, brief.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "ebb/lab/pebble.h"

namespace {

using ebb::PebbleProblem;

std::string JsonString(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    char code[8];
    std::snprintf(code, sizeof(code), "\\u%04x", static_cast<unsigned char>(c));
    out += code;
  }
  return out + "\"";
}

// Bytes above 127 come out as the code points of the same number.
int WriteVocabulary() {
  std::puts("[");
  const auto vocabulary = ebb::PebbleVocabulary();
  for (size_t i = 0; i < vocabulary.size(); ++i)
    std::printf("%s%s\n", JsonString(vocabulary[i]).c_str(), i + 1 < vocabulary.size() ? "," : "");
  std::puts("]");
  return 0;
}

int WriteText(uint64_t seed, uint64_t first, uint64_t count) {
  for (uint64_t i = first; i < first + count; ++i)
    std::printf("%s\n\n", ebb::MakePebbleProblem(seed, i).Text().c_str());
  return 0;
}

int WriteStatistics(uint64_t seed, uint64_t first, uint64_t count) {
  std::vector<int> thoughts;
  std::vector<int> totals;
  std::array<int, ebb::kNumPebbleFamilies> families = {};
  std::array<int64_t, ebb::kNumPebbleTokenKinds> kinds = {};
  std::array<int, ebb::kNumPebbleFamilies> far = {};
  for (uint64_t i = first; i < first + count; ++i) {
    const PebbleProblem p = ebb::MakePebbleProblem(seed, i);
    const auto family = static_cast<size_t>(p.family);
    ++families[family];
    far[family] += p.farthest_lookup > 500 ? 1 : 0;
    thoughts.push_back(p.num_thought_tokens);
    totals.push_back(static_cast<int>(p.tokens.size()));
    for (const ebb::PebbleTokenKind kind : p.kinds) ++kinds[static_cast<size_t>(kind)];
  }
  std::sort(thoughts.begin(), thoughts.end());
  std::sort(totals.begin(), totals.end());
  std::printf("thought tokens: %d to %d, median %d; longest text %d tokens\n", thoughts.front(),
              thoughts.back(), thoughts[thoughts.size() / 2], totals.back());
  for (size_t f = 0; f < families.size(); ++f)
    std::printf("%-8s %5d problems, %5d look up something from more than 500 tokens back\n",
                ebb::PebbleFamilyName(static_cast<ebb::PebbleFamily>(f)).data(), families[f],
                far[f]);
  for (size_t k = 0; k < kinds.size(); ++k)
    std::printf("%-8s %9lld tokens\n",
                ebb::PebbleTokenKindName(static_cast<ebb::PebbleTokenKind>(k)).data(),
                static_cast<long long>(kinds[k]));
  return 0;
}

template <typename T>
void Append(const T* values, size_t count, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(values), count * sizeof(T));
}

// Of a hundred problems; the others are whole ones.
struct Shares {
  uint64_t facts = 0, drills = 0, brief = 0;
};

PebbleProblem Mix(uint64_t seed, uint64_t number, const Shares& shares) {
  uint64_t share = number * 61 % 100;  // spreads each kind evenly
  if (share < shares.facts) {
    return ebb::MakePebbleDrill(ebb::PebbleDrill::kFacts, seed, number);
  }
  share -= shares.facts;
  if (share < shares.drills) {
    return ebb::MakePebbleDrill(ebb::PebbleDrill::kSentences, seed, number);
  }
  if (share - shares.drills < shares.brief) return ebb::MakeBriefPebbleProblem(seed, number);
  return ebb::MakePebbleProblem(seed, number);
}

int Stream(uint64_t seed, uint64_t first, uint64_t stride, uint64_t block, const Shares& shares) {
  for (uint64_t b = first;; b += stride) {
    std::string bytes;
    for (uint64_t i = b * block; i < (b + 1) * block; ++i) {
      const PebbleProblem p = Mix(seed, i, shares);
      const std::array<int32_t, 4> head = {static_cast<int32_t>(p.tokens.size()),
                                           p.num_question_tokens, static_cast<int32_t>(p.family),
                                           p.farthest_lookup};
      Append(head.data(), head.size(), &bytes);
      Append(p.tokens.data(), p.tokens.size(), &bytes);
      Append(p.kinds.data(), p.kinds.size(), &bytes);
    }
    // The reader goes away when it has enough.
    if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size()) return 0;
  }
}

int Usage() {
  std::fputs(
      "usage: pebble_problems vocabulary | text SEED FIRST COUNT | statistics SEED FIRST "
      "COUNT | stream SEED FIRST STRIDE BLOCK FACTS_PERCENT DRILL_PERCENT BRIEF_PERCENT\n",
      stderr);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  std::vector<uint64_t> numbers;
  for (int i = 2; i < argc; ++i) {
    char* end = nullptr;
    numbers.push_back(std::strtoull(argv[i], &end, 10));
    if (end == argv[i] || *end != '\0') return Usage();
  }
  if (command == "vocabulary" && numbers.empty()) return WriteVocabulary();
  if (command == "text" && numbers.size() == 3)
    return WriteText(numbers[0], numbers[1], numbers[2]);
  if (command == "statistics" && numbers.size() == 3 && numbers[2] > 0)
    return WriteStatistics(numbers[0], numbers[1], numbers[2]);
  if (command == "stream" && numbers.size() == 7 && numbers[2] > 0 && numbers[3] > 0)
    return Stream(numbers[0], numbers[1], numbers[2], numbers[3],
                  {.facts = numbers[4], .drills = numbers[5], .brief = numbers[6]});
  return Usage();
}
