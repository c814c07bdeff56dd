// Implements RewriteSchema(). Schemas that must all hold for one value are a list of nodes. The
// list is expanded into alternatives without references, `allOf`, `anyOf` and `oneOf`
// (schema_expansion.cc); each alternative becomes one schema per type of value that it admits
// (schema_types.cc).
#ifndef EBB_MODEL_SCHEMA_SCHEMA_REWRITER_H_
#define EBB_MODEL_SCHEMA_SCHEMA_REWRITER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/model/schema/regex.h"
#include "src/model/schema/schema_document.h"
#include "src/model/schema/schema_rewrite.h"

namespace ebb {

using SchemaNodes = std::vector<const SchemaJson*>;

// SchemaCase is one of the alternatives that schemas admit: a value must match all of `nodes` and
// none of `excluded`. References and combinations of the nodes are already expanded, so only their
// other keywords count.
struct SchemaCase {
  SchemaNodes nodes;
  SchemaNodes excluded;
};

class SchemaRewriter {
 public:
  SchemaRewriter(SchemaJson root, SchemaUse use, std::string name)
      : document_(std::move(root)), use_(use), name_(std::move(name)) {}

  // Returns the rewritten schema; nullopt: it failed, see error().
  std::optional<SchemaJson> Rewrite();
  [[nodiscard]] const std::string& error() const { return error_; }
  [[nodiscard]] const std::vector<std::string>& widened() const { return widened_; }
  [[nodiscard]] const std::vector<BoundedNumbers>& numbers() const { return numbers_; }

  // Returns whether rewriting took more work than allowed.
  bool IsExhausted();

 private:
  struct Definition {
    std::string name;
    bool is_open = true;   // it is being rewritten
    bool is_used = false;  // something refers to it
    std::optional<SchemaJson> schema = {};
  };
  using Definitions = std::map<SchemaNodes, Definition>;
  struct Expansion {
    SchemaCase so_far;
    SchemaNodes pending;
    std::set<const SchemaJson*> seen;
    std::vector<std::pair<const SchemaJson*, const char*>> choices;  // nodes and their keywords
    std::vector<std::pair<const SchemaJson*, size_t>> only;          // of oneOf: what was chosen
  };
  // ObjectCase and ArrayCase merge the keywords for objects, or arrays, of all nodes of a case.
  struct ObjectCase;
  struct ArrayCase;

  // Reports a keyword that a grammar cannot enforce: an error for kAnswer, a widened part for
  // kTool.
  void Refuse(const SchemaJson& node, const char* keyword, std::string_view why);
  void Fail(std::string why);
  // Returns whether it is certain that no value of the case is admitted by all of `more`.
  bool AdmitsNothing(const SchemaCase& one, SchemaNodes more);

  // Returns a schema of the values that all nodes admit; nullopt: there are none.
  std::optional<SchemaJson> Together(SchemaNodes nodes);
  std::vector<SchemaCase> Expand(SchemaCase so_far, SchemaNodes more);
  void Expand(Expansion state, std::vector<SchemaCase>* cases);
  bool TakeNode(const SchemaJson& node, Expansion* state);
  void TakeReference(const SchemaJson& node, const SchemaJson& reference, Expansion* state);
  void TakeDependencies(const SchemaJson& node, Expansion* state);
  static void TakeExcluded(const SchemaJson& excluded, Expansion* state);
  void Choose(Expansion state, std::vector<SchemaCase>* cases);
  void MakeExclusive(const Expansion& state, SchemaCase* one);
  bool MakeDisjoint(const SchemaJson& other, SchemaCase* one);

  // Returns one schema for each type of value that the case admits. This and the functions up to
  // Count() work on one case.
  std::vector<SchemaJson> Typed(const SchemaCase& one);
  std::optional<std::vector<SchemaJson>> Listed(const SchemaCase& one);
  [[nodiscard]] uint32_t TypesOf(const SchemaCase& one);
  uint32_t WithoutExcluded(const SchemaCase& one, uint32_t types, std::set<std::string>* forbidden);
  static bool TakeExcludedSchema(const SchemaJson& excluded, uint32_t* types,
                                 std::set<std::string>* forbidden);
  std::optional<SchemaJson> OfType(const SchemaCase& one, uint32_t type,
                                   const std::set<std::string>& forbidden);
  std::optional<SchemaJson> Integer(const SchemaCase& one);
  std::optional<SchemaJson> MultiplesOf(const SchemaCase& one, int64_t least, int64_t most);
  std::optional<SchemaJson> Number(const SchemaCase& one);
  SchemaJson StandIn(const RegexNode& numbers);
  std::optional<SchemaJson> String(const SchemaCase& one);
  std::optional<RegexNode> PatternOfCase(const SchemaCase& one, bool* has_pattern);
  std::optional<SchemaJson> Array(const SchemaCase& one);
  std::optional<SchemaJson> Tuples(const ArrayCase& array);
  std::optional<SchemaJson> Object(const SchemaCase& one, const std::set<std::string>& forbidden);
  void ReadMembers(const SchemaCase& one, ObjectCase* object);
  void ReadNames(const SchemaCase& one, ObjectCase* object);
  void CheckMemberKeywords(const SchemaCase& one, ObjectCase* object);
  SchemaNodes MemberNodes(const SchemaCase& one, const std::string& name);
  std::optional<SchemaJson> WithCounts(const SchemaCase& one, ObjectCase* object);
  // Returns the largest, or the smallest, count that the nodes have for a keyword.
  std::optional<size_t> Count(const SchemaCase& one, const char* keyword, bool largest);

  // Returns a tool's root as one object, with the properties of all its choices.
  SchemaJson MergedRoot(SchemaJson root);
  [[nodiscard]] SchemaJson WithDefinitions(SchemaJson root) const;

  SchemaDocument document_;
  const SchemaUse use_;
  const std::string name_;
  bool only_asks_ = false;  // nothing is reported: whether schemas exclude each other
  Definitions definitions_;
  size_t num_definitions_ = 0;
  size_t steps_ = 0;
  size_t depth_ = 0;
  std::string error_;
  std::vector<std::string> widened_;
  std::vector<BoundedNumbers> numbers_;
};

}  // namespace ebb

#endif  // EBB_MODEL_SCHEMA_SCHEMA_REWRITER_H_
