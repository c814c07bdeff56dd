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
  std::optional<EngineTiers> tiers = {};  // the engine's tiers
};
inline std::ostream& operator<<(std::ostream& out, const SessionCase& c) { return out << c.name; }

// A policy, and the tiers that it needs of an engine.
struct TieredPolicy : PolicySpec {
  TieredPolicy(const PolicySpec& policy)  // NOLINT(google-explicit-constructor)
      : PolicySpec(policy) {}

  std::optional<EngineTiers> engine;
};

inline TieredPolicy Tiered(const TierSetting& tiers, const std::string& scorer = "attention") {
  TieredPolicy policy =
      PolicySpec{.name = scorer, .window = 8, .interval = 8, .tiers = tiers.shares};
  policy.engine = tiers.engine;
  return policy;
}

// The policy at each granularity.
inline void AddCases(const std::string& name, const TieredPolicy& policy,
                     std::vector<SessionCase>* cases) {
  for (const Granularity granularity :
       {Granularity::kToken, Granularity::kLayer, Granularity::kHead}) {
    SessionCase one = {.name = name + "_" + std::string(GranularityName(granularity)),
                       .options = {},
                       .tiers = policy.engine};
    one.options.policy = policy;
    one.options.policy.granularity = granularity;
    cases->push_back(one);
  }
}

}  // namespace ebb

#endif  // EBB_TESTS_ENGINE_SESSIONS_SESSION_CASES_H_
