// Sessions that are saved and resumed, for tests of their files.
#ifndef EBB_TESTS_ENGINE_SESSIONS_SESSION_FIXTURE_H_
#define EBB_TESTS_ENGINE_SESSIONS_SESSION_FIXTURE_H_

#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "ebb/session_file.h"
#include "tests/engine/engine_fixture.h"

namespace ebb {

// A session of these options in an engine of its own.
struct OwnSession {
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Session> session;
  std::string extra = {};
};

inline EngineOptions EngineOptionsFor(const std::optional<EngineTiers>& tiers) {
  return {.threads = 1, .tiers = tiers};
}

inline OwnSession OpenOwn(const SessionOptions& options,
                          const std::optional<EngineTiers>& tiers = {}) {
  OwnSession own = {.engine = MakeEngine(EngineOptionsFor(tiers)), .session = nullptr};
  own.session = Open(*own.engine, options);
  return own;
}

inline Result<OwnSession> ResumeOwn(const std::string& path, const SessionOptions& options,
                                    const std::optional<EngineTiers>& tiers = {}) {
  OwnSession own = {.engine = MakeEngine(EngineOptionsFor(tiers)), .session = nullptr};
  EBB_ASSIGN_OR_RETURN(ResumedSession resumed, ResumeSession(*own.engine, path, options));
  own.session = std::move(resumed.session);
  own.extra = std::move(resumed.extra);
  return own;
}

inline std::string ReadFileBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void WriteFileBytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

}  // namespace ebb

#endif  // EBB_TESTS_ENGINE_SESSIONS_SESSION_FIXTURE_H_
