#include "src/model/schema/regex.h"

#include <string>
#include <utility>
#include <vector>

namespace ebb {
namespace {

using Positions = std::vector<bool>;  // [text.size() + 1]

// Returns the ends of the matches that begin at `from`.
Positions EndsOf(const RegexNode& node, const std::u32string& text, Positions from) {
  switch (node.kind) {
    case RegexNode::Kind::kSet: {
      Positions ends(from.size(), false);
      for (size_t i = 0; i < text.size(); ++i) {
        if (from[i] && node.set.Contains(text[i])) ends[i + 1] = true;
      }
      return ends;
    }
    case RegexNode::Kind::kSequence:
      for (const RegexNode& part : node.parts) from = EndsOf(part, text, std::move(from));
      return from;
    case RegexNode::Kind::kChoice: {
      Positions ends(from.size(), false);
      for (const RegexNode& part : node.parts) {
        const Positions some = EndsOf(part, text, from);
        for (size_t i = 0; i < ends.size(); ++i) ends[i] = ends[i] || some[i];
      }
      return ends;
    }
    case RegexNode::Kind::kRepeat: {
      Positions ends(from.size(), false);
      for (size_t times = 0; times <= node.most; ++times) {
        if (times >= node.least) {
          for (size_t i = 0; i < ends.size(); ++i) ends[i] = ends[i] || from[i];
        }
        Positions next = EndsOf(node.parts[0], text, from);
        // From here on nothing changes.
        if (next == from) {
          if (times < node.least) return next;
          break;
        }
        if (times > node.least + text.size()) break;
        from = std::move(next);
      }
      return ends;
    }
    default:
      return from;
  }
}

}  // namespace

bool MatchesWhole(const RegexNode& node, std::string_view text) {
  const std::u32string points = CodePoints(text);
  Positions from(points.size() + 1, false);
  from[0] = true;
  return EndsOf(node, points, std::move(from)).back();
}

}  // namespace ebb
