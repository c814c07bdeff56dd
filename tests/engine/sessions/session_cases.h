// Sessions of every kind, each under a name, for tests that run over all of them.
#ifndef EBB_TESTS_ENGINE_SESSIONS_SESSION_CASES_H_
#define EBB_TESTS_ENGINE_SESSIONS_SESSION_CASES_H_

#include <ostream>
#include <string>
#include <vector>

#include "tests/engine/engine_fixture.h"

namespace ebb {

struct SessionCase {
  std::string name;
  SessionOptions options;
};
inline std::ostream& operator<<(std::ostream& out, const SessionCase& c) { return out << c.name; }

inline PolicySpec Tiered(const TierSpec& tiers, const std::string& scorer = "attention") {
  PolicySpec policy = {.name = scorer};
  policy.tiers = tiers;
  policy.window = 8;
  policy.interval = 8;
  return policy;
}

// The policy at each granularity.
inline void AddCases(const std::string& name, const PolicySpec& policy,
                     std::vector<SessionCase>* cases) {
  for (const Granularity granularity :
       {Granularity::kToken, Granularity::kLayer, Granularity::kHead}) {
    SessionCase one = {.name = name + "_" + std::string(GranularityName(granularity)),
                       .options = {}};
    one.options.policy = policy;
    one.options.policy.granularity = granularity;
    cases->push_back(one);
  }
}

}  // namespace ebb

#endif  // EBB_TESTS_ENGINE_SESSIONS_SESSION_CASES_H_
