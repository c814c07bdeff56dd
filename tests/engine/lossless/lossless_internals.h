// The two sequences behind a lossless session, for tests that look at both.
#ifndef EBB_TESTS_ENGINE_LOSSLESS_LOSSLESS_INTERNALS_H_
#define EBB_TESTS_ENGINE_LOSSLESS_LOSSLESS_INTERNALS_H_

#include "src/lossless/speculator.h"
#include "src/session/session_impl.h"

namespace ebb {

// REQUIRES: the session is lossless.
inline Speculator& LosslessOf(Session& session) { return *Internals::Of(session).speculator; }

}  // namespace ebb

#endif  // EBB_TESTS_ENGINE_LOSSLESS_LOSSLESS_INTERNALS_H_
