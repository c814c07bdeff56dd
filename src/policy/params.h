// Parameters of a policy: the declarations of the tables, and the values that a user gave. A
// declaration such as "heavy=N,page=P,last=T,alpha=X,h1=sigmoid|none" names a whole number from 0
// on, one from 1 on, a number of tokens from 1 on that memory is taken for, a number from 0 on, and
// a choice of words.
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

// Bound of every number of tokens or steps, so that sums of them fit into an int.
inline constexpr int kMaxNumber = 1 << 28;

// Bound of every number of tokens that memory is taken for, whatever the context: such memory is
// not counted in any tier, and a request may ask for it.
inline constexpr int kMostTokensKept = 1024;

// The parameters that were given; they fit the declaration.
struct Params {
  std::map<std::string, double, std::less<>> numbers = {};
  std::map<std::string, std::string, std::less<>> words = {};

  [[nodiscard]] std::optional<int> Find(std::string_view key) const;
  [[nodiscard]] int Int(std::string_view key, int otherwise) const;
  [[nodiscard]] float Number(std::string_view key, float otherwise) const;
  [[nodiscard]] std::string Word(std::string_view key, std::string_view otherwise) const;
};

// "heavy=N,recent=N": heavy, recent.
[[nodiscard]] std::vector<std::string_view> ParamNames(std::string_view declared);
// Errors: InvalidArgument, naming the policy, for a parameter that is not declared or does not fit.
// `context`: tokens, which bound those that memory is taken for too; 0: not known.
[[nodiscard]] Result<Params> ReadParams(std::string_view policy, std::string_view declared,
                                        const std::map<std::string, std::string>& given,
                                        int context = 0);

}  // namespace ebb

#endif  // EBB_POLICY_PARAMS_H_
