// The two sequences behind a lossless session, for tests that look at both.
#ifndef EBB_TESTS_ENGINE_LOSSLESS_LOSSLESS_INTERNALS_H_
#define EBB_TESTS_ENGINE_LOSSLESS_LOSSLESS_INTERNALS_H_

#include "src/lossless/lossless_body.h"
#include "src/session/session_impl.h"

namespace ebb {

// REQUIRES: the session is lossless.
inline LosslessBody& LosslessOf(Session& session) {
  return static_cast<LosslessBody&>(*Internals::Of(session).body);
}

}  // namespace ebb

#endif  // EBB_TESTS_ENGINE_LOSSLESS_LOSSLESS_INTERNALS_H_
