// Shared by the sources of sessions and generations.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_PYTHON_SESSIONS_H_
#define EBB_PYTHON_SESSIONS_H_

#include <memory>
#include <span>
#include <vector>

#include "bindings.h"

namespace ebb::python {

using HolderPtr = std::shared_ptr<SessionHolder>;

// PySession is the core of ebb.Session.
struct PySession {
  HolderPtr holder;
};

// Returns the session. Raises what its policy's Python code raised.
inline PySession& Sound(PySession& session) {
  session.holder->failure->RaiseIfSet();
  return session;
}

// Raises what a pending signal's handler raises: Ctrl-C's KeyboardInterrupt.
inline void CheckSignals() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

// Returns work(session), for which the engine is this thread's and the GIL is released.
template <typename Work>
auto InTurn(const HolderPtr& holder, Work work) {
  EngineTurn::Hold turn(holder->turn);
  return WithoutGil([&] { return work(*holder->session); });
}

// Reads tokens and ends between chunks when a signal's handler or `progress` raises.
void Prefill(const HolderPtr& holder, std::span<const Token> tokens, nb::handle progress,
             PrefillOptions options = {});

// Returns the tokens of a text, or of a sequence of tokens.
[[nodiscard]] std::vector<Token> TokensOf(const Model& model, nb::handle prompt);

// Binds generations and conversations, and the methods of a session that begin them.
void BindGenerations(nb::module_& module, nb::class_<PySession>* session);

}  // namespace ebb::python

#endif  // EBB_PYTHON_SESSIONS_H_
