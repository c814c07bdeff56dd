#include "src/model/sampling/grammar_matcher.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

namespace ebb {
namespace {

// kLeast[n] is the least code point that UTF-8 encodes in n bytes.
constexpr std::array<uint32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};

}  // namespace

GrammarMatcher::GrammarMatcher(std::shared_ptr<const GrammarProgram> program,
                               std::shared_ptr<const TokenOrder> tokens)
    : program_(std::move(program)),
      tokens_(std::move(tokens)),
      sets_(std::make_unique<ThreadSets>(program_)) {}

std::unique_ptr<GrammarMatcher> GrammarMatcher::Create(
    std::shared_ptr<const GrammarProgram> program, std::shared_ptr<const TokenOrder> tokens) {
  std::unique_ptr<GrammarMatcher> matcher(
      new GrammarMatcher(std::move(program), std::move(tokens)));
  matcher->Begin();
  matcher->place_.set = matcher->sets_->Start();
  matcher->End();
  return matcher;
}

std::unique_ptr<GrammarMatcher> GrammarMatcher::Clone() const {
  std::unique_ptr<GrammarMatcher> clone(new GrammarMatcher(program_, tokens_));
  clone->place_ = place_;
  clone->place_.set = clone->sets_->CopyFrom(*sets_, place_.set);
  clone->is_overrun_ = is_overrun_;
  return clone;
}

void GrammarMatcher::End() const { is_overrun_ = is_overrun_ || sets_->is_budget_spent(); }

bool GrammarMatcher::Step(unsigned char byte, Place* place) const {
  if (byte < 0x80) {
    if (byte == 0 || place->missing > 0) return false;
    place->set = sets_->Next(place->set, program_->ascii_classes[byte]);
    return place->set != ThreadSets::kDead;
  }
  if (place->missing == 0) {
    if (byte < 0xC2 || byte > 0xF4) return false;
    place->length = byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
    place->missing = place->length - 1;
    place->character = byte & (0xFF >> (place->length + 1));
    return true;
  }
  if ((byte & 0xC0) != 0x80) return false;
  place->character = (place->character << 6) | (byte & 0x3F);
  if (--place->missing > 0) return true;
  if (place->character < kLeast[place->length]) return false;
  place->set = sets_->Next(place->set, program_->ClassOf(place->character));
  return place->set != ThreadSets::kDead;
}

bool GrammarMatcher::MayStop(const Place& place) const {
  if (place.missing == 0) return true;
  const int bits = 6 * place.missing;
  const uint32_t first = std::max(place.character << bits, kLeast[place.length]);
  const uint32_t last = (place.character << bits) | ((uint32_t{1} << bits) - 1);
  // Checks for an empty range, because bytes such as E0 80 begin no character.
  return first <= last && sets_->TakesAny(place.set, first, last);
}

bool GrammarMatcher::TakesText(std::string_view text, Place* place) const {
  for (const char byte : text) {
    if (!Step(static_cast<unsigned char>(byte), place)) return false;
  }
  return MayStop(*place);
}

bool GrammarMatcher::Admits(Token token) const {
  if (tokens_->Ends(token)) return place_.missing == 0 && sets_->MayEnd(place_.set);
  if (tokens_->TextOf(token).empty()) return false;
  Begin();
  Place place = place_;
  const bool by_name =
      place.missing == 0 && sets_->NextByToken(place.set, token) != ThreadSets::kDead;
  const bool admits = by_name || TakesText(tokens_->TextOf(token), &place);
  End();
  return admits;
}

std::vector<bool> GrammarMatcher::Admitted() const {
  Begin();
  std::vector<bool> admitted(tokens_->vocab_size());
  std::vector<Place> places = {place_};  // behind each byte of the last text, as far as it may come
  for (const TokenOrder::Entry& entry : tokens_->entries()) {
    const std::string_view text = tokens_->TextOf(entry.token);
    if (entry.shared + 1 > places.size()) continue;
    places.resize(entry.shared + 1);
    Place place = places.back();
    while (places.size() <= text.size() &&
           Step(static_cast<unsigned char>(text[places.size() - 1]), &place)) {
      places.push_back(place);
    }
    admitted[entry.token] = places.size() > text.size() && MayStop(place);
  }
  if (place_.missing == 0) AdmitByName(&admitted);
  End();
  return admitted;
}

// Admits the tokens that instructions name, and the ones that may end the answer.
void GrammarMatcher::AdmitByName(std::vector<bool>* admitted) const {
  const auto admit = [&](size_t token) {
    const auto id = static_cast<Token>(token);
    if (!tokens_->Ends(id) && !tokens_->TextOf(id).empty()) (*admitted)[token] = true;
  };
  std::set<uint32_t> excluded;  // by instructions that each admit all the others
  for (const ThreadSets::Thread& thread : sets_->threads(place_.set)) {
    const GrammarInstruction& one = sets_->InstructionOf(thread);
    if (one.kind == GrammarInstruction::Kind::kToken) admit(one.value);
    if (one.kind == GrammarInstruction::Kind::kNotToken) excluded.insert(one.value);
  }
  for (size_t token = 0; token < admitted->size() && !excluded.empty(); ++token) {
    if (excluded.size() > 1 || !excluded.contains(static_cast<uint32_t>(token))) admit(token);
  }
  for (const Token token : tokens_->ends()) (*admitted)[token] = sets_->MayEnd(place_.set);
}

bool GrammarMatcher::Accept(Token token, std::string_view text) {
  if (tokens_->Ends(token)) return place_.missing == 0 && sets_->MayEnd(place_.set);
  Begin();
  const ThreadSets::Set by_name =
      place_.missing == 0 ? sets_->NextByToken(place_.set, token) : ThreadSets::kDead;
  Place place = place_;
  if (!TakesText(text, &place)) place = {};
  if (by_name != ThreadSets::kDead) place.set = sets_->Union(place.set, by_name);
  place_ = place;
  End();
  if (sets_->num_stored() > kMostStored) {
    auto sets = std::make_unique<ThreadSets>(program_);
    place_.set = sets->CopyFrom(*sets_, place_.set);
    sets_ = std::move(sets);
    is_overrun_ = is_overrun_ || sets_->num_stored() > kMostStored / 2;
  }
  return !IsDead();
}

}  // namespace ebb
