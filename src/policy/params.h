// Parses the parameters of a policy. The policy table declares them as text, for example
// "heavy=N,page=P,last=T,alpha=X,h1=sigmoid|none": N is a whole number from 0, P one from 1, T a
// number of tokens from 1 for which the policy allocates memory, X a number from 0, and
// "sigmoid|none" a choice of words.
#ifndef EBB_POLICY_PARAMS_H_
#define EBB_POLICY_PARAMS_H_

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/status.h"

namespace ebb {

// kMaxNumber bounds every number of tokens or steps, so that a sum of them fits into an int.
inline constexpr int kMaxNumber = 1 << 28;

// kMostTokensKept bounds every T in any context, because no tier's cap counts that memory and a
// client's request may set T.
inline constexpr int kMostTokensKept = 1024;

// Params holds the parameters that a user gave, already checked against the declaration.
struct Params {
  std::map<std::string, double, std::less<>> numbers = {};
  std::map<std::string, std::string, std::less<>> words = {};

  [[nodiscard]] std::optional<int> Find(std::string_view key) const;
  [[nodiscard]] int Int(std::string_view key, int otherwise) const;
  [[nodiscard]] float Number(std::string_view key, float otherwise) const;
  [[nodiscard]] std::string Word(std::string_view key, std::string_view otherwise) const;
};

// Returns the names that a declaration declares: "heavy=N,recent=N" declares heavy and recent.
[[nodiscard]] std::vector<std::string_view> ParamNames(std::string_view declared);
// Parses the given values. `context` also bounds each T, in tokens; 0: the context is not known.
// Errors: InvalidArgument, naming the policy, for a parameter that is not declared or whose value
// does not fit its declaration.
[[nodiscard]] Result<Params> ReadParams(std::string_view policy, std::string_view declared,
                                        const std::map<std::string, std::string>& given,
                                        int context = 0);

}  // namespace ebb

#endif  // EBB_POLICY_PARAMS_H_
