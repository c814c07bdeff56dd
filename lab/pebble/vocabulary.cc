#include "lab/pebble/vocabulary.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unordered_map>
#include <vector>

#include "ebb/lab/pebble.h"

namespace ebb::pebble {
namespace {

constexpr std::array<std::string_view, 10> kNumbers = {"zero", "one", "two",   "three", "four",
                                                       "five", "six", "seven", "eight", "nine"};

constexpr std::array<std::string_view, 48> kNames = {
    "Ada", "Amy", "Ann", "Ben", "Bob", "Cal", "Dan", "Deb", "Eli", "Eva", "Fay", "Gus",
    "Guy", "Hal", "Ian", "Ida", "Ivy", "Jan", "Jay", "Jim", "Joe", "Joy", "Kay", "Ken",
    "Kim", "Kit", "Lee", "Leo", "Liz", "Lou", "Mae", "Max", "Mia", "Ned", "Nia", "Pam",
    "Pat", "Ray", "Rex", "Rob", "Ron", "Roy", "Sam", "Sue", "Tim", "Tom", "Una", "Zoe"};

constexpr std::array<std::string_view, 48> kRooms = {
    "attic",  "barn",   "bay",     "beach",   "bridge", "camp",   "cave",   "cellar",
    "chapel", "cliff",  "court",   "dock",    "farm",   "ferry",  "field",  "forest",
    "fort",   "garden", "gate",    "glade",   "grove",  "hall",   "harbor", "hill",
    "hotel",  "island", "kitchen", "lake",    "lodge",  "market", "meadow", "mill",
    "mine",   "museum", "office",  "orchard", "palace", "park",   "porch",  "river",
    "school", "shed",   "shop",    "stable",  "studio", "temple", "tower",  "yard"};

constexpr std::array<std::string_view, 20> kOrdinals = {
    "First",     "Second",    "Third",       "Fourth",     "Fifth",      "Sixth",      "Seventh",
    "Eighth",    "Ninth",     "Tenth",       "Eleventh",   "Twelfth",    "Thirteenth", "Fourteenth",
    "Fifteenth", "Sixteenth", "Seventeenth", "Eighteenth", "Nineteenth", "Twentieth"};

constexpr std::array<std::string_view, 12> kObjects = {
    "ball", "bell", "book", "coin", "cup", "drum", "fan", "hat", "key", "lamp", "ring", "rope"};

constexpr std::string_view kOtherWords =
    "gets plus minus times makes finds loses adds and swap take drop to is the last "
    "At first What does do have make Start with So The answer Say again Recall "
    "Briefly Check yes This Nothing Let My Yes Well Good Okay Fine Hmm Wait let me look at that "
    "once more fine so go on next one did I read question right think There no hurry a small slip "
    "here would spoil all comes after it That looks It good be slow and sure done How far still "
    "Not keep calm going this was easy but not every will then step by can wrong my head clear "
    "write down before forget where of course same as thought well enough now hard know said "
    "say";

struct Vocabulary {
  std::vector<std::string> texts;
  std::unordered_map<std::string_view, uint16_t> by_word;
};

void AddWord(std::string_view word, Vocabulary* v) {
  if (v->by_word.contains(word)) return;
  v->by_word.emplace(word, static_cast<uint16_t>(v->texts.size()));
  v->texts.push_back(" " + std::string(word));
}

Vocabulary Make() {
  Vocabulary v;
  for (int byte = 0; byte < kNumPebbleBytes; ++byte)
    v.texts.emplace_back(1, static_cast<char>(static_cast<unsigned char>(byte)));
  for (const char* control : {"<|start|>", "<|end|>", "<think>", "</think>"})
    v.texts.emplace_back(control);
  for (const std::string_view mark : {".", ",", ":", "?"})
    v.by_word.emplace(mark, static_cast<uint16_t>(mark[0]));
  v.by_word.emplace("Question", static_cast<uint16_t>(v.texts.size()));
  v.texts.emplace_back("Question");  // at the beginning of a text, without a space
  for (const std::string_view word : kNumbers) AddWord(word, &v);
  for (const std::string_view word : kNames) AddWord(word, &v);
  for (const std::string_view word : kRooms) AddWord(word, &v);
  for (const std::string_view word : kOrdinals) AddWord(word, &v);
  for (const std::string_view word : kObjects) AddWord(word, &v);
  for (std::string_view rest = kOtherWords; !rest.empty();) {
    const size_t space = rest.find(' ');
    AddWord(rest.substr(0, space), &v);
    rest = space == std::string_view::npos ? std::string_view() : rest.substr(space + 1);
  }
  return v;
}

const Vocabulary& Get() {
  static const Vocabulary vocabulary = Make();
  return vocabulary;
}

}  // namespace

std::span<const std::string_view> Numbers() { return kNumbers; }
std::span<const std::string_view> Names() { return kNames; }
std::span<const std::string_view> Rooms() { return kRooms; }
std::span<const std::string_view> Ordinals() { return kOrdinals; }
std::span<const std::string_view> Objects() { return kObjects; }

uint16_t TokenOf(std::string_view word) {
  const auto found = Get().by_word.find(word);
  if (found == Get().by_word.end()) {
    std::fprintf(stderr, "pebble: no token for \"%.*s\"\n", static_cast<int>(word.size()),
                 word.data());
    std::abort();
  }
  return found->second;
}

}  // namespace ebb::pebble

namespace ebb {

std::span<const std::string> PebbleVocabulary() { return pebble::Get().texts; }

}  // namespace ebb
