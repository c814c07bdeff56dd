#include "src/server/api/parts/answer_parts.h"

#include <utility>

namespace ebb::server {

void AnswerParts::Open(AnswerPart part, std::vector<PartEvent>* events) {
  Close(events);
  parts_.push_back(std::move(part));
  events->push_back({PartEvent::Kind::kOpened, parts_.size() - 1});
}

void AnswerParts::Close(std::vector<PartEvent>* events) {
  if (parts_.empty() || !parts_.back().is_open) return;
  parts_.back().is_open = false;
  events->push_back({PartEvent::Kind::kClosed, parts_.size() - 1});
}

void AnswerParts::Grow(const std::string& text, std::vector<PartEvent>* events) {
  if (text.empty()) return;
  parts_.back().text += text;
  if (!events->empty() && events->back().kind == PartEvent::Kind::kGrew) {
    events->back().text += text;
  } else {
    events->push_back({PartEvent::Kind::kGrew, parts_.size() - 1, text});
  }
}

void AnswerParts::Add(const AnswerPiece& piece, std::vector<PartEvent>* events) {
  using Kind = AnswerPart::Kind;
  const auto is_in = [this](Kind kind) {
    return !parts_.empty() && parts_.back().is_open && parts_.back().kind == kind;
  };
  const auto add = [&](Kind kind, const std::string& text) {
    if (text.empty()) return;
    if (!is_in(kind)) Open({.kind = kind}, events);
    Grow(text, events);
  };
  add(Kind::kThought, piece.thought);
  add(Kind::kText, piece.content);
  for (const CallPiece& call : piece.calls) {
    const bool goes_on = is_in(Kind::kCall) && parts_.back().call_index == call.index;
    if (!goes_on) {
      Open({.kind = Kind::kCall, .call_id = call.id, .name = call.name, .call_index = call.index},
           events);
    }
    Grow(call.arguments, events);
  }
}

}  // namespace ebb::server
