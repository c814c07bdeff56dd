// Saves and loads the part of a session's file that describes a sequence; see docs/dev/formats.md.
#ifndef EBB_SEQUENCE_SEQUENCE_FILE_H_
#define EBB_SEQUENCE_SEQUENCE_FILE_H_

#include "ebb/state.h"
#include "ebb/status.h"

namespace ebb {

class Sequence;

class SequenceFile {
 public:
  // Makes an object that saves and loads `sequence`, which must outlive it.
  explicit SequenceFile(Sequence* sequence) : sequence_(*sequence) {}

  void SaveTokens(StateWriter* to) const;
  void SavePlaces(StateWriter* to) const;
  [[nodiscard]] Status SavePolicy(StateWriter* to) const;
  // LoadTokens(), LoadPlaces() and LoadPolicy() load the data that the functions above saved.
  // Errors: Corrupt. REQUIRES: the sequence is new; the calls come in this order.
  [[nodiscard]] Status LoadTokens(StateReader* from);
  [[nodiscard]] Status LoadPlaces(StateReader* from);
  // Checks that the context has RoPE positions for all rows, once the rows are known. Errors:
  // InvalidArgument (the context is too short).
  [[nodiscard]] Status CheckPlaces() const;
  [[nodiscard]] Status LoadPolicy(StateReader* from);

  // Makes the sequence a fork of `other`; see Sequence::ForkFrom().
  Status ForkFrom(Sequence* other);

 private:
  // Saves the part of SavePlaces() that a fork does not share.
  void SaveKeyPlaces(StateWriter* to) const;
  [[nodiscard]] Status LoadKeyPlaces(StateReader* from);
  [[nodiscard]] Status CheckWindows() const;

  Sequence& sequence_;
};

}  // namespace ebb

#endif  // EBB_SEQUENCE_SEQUENCE_FILE_H_
