// The part of a session's file that a sequence fills; see docs/dev/formats.md.
#ifndef EBB_SEQUENCE_SEQUENCE_FILE_H_
#define EBB_SEQUENCE_SEQUENCE_FILE_H_

#include "ebb/state.h"
#include "ebb/status.h"

namespace ebb {

class Sequence;

class SequenceFile {
 public:
  // `sequence` outlives it.
  explicit SequenceFile(Sequence* sequence) : sequence_(*sequence) {}

  void SaveTokens(StateWriter* to) const;
  void SavePlaces(StateWriter* to) const;
  [[nodiscard]] Status SavePolicy(StateWriter* to) const;
  // Errors: Corrupt. REQUIRES: the sequence is new; in this order.
  [[nodiscard]] Status LoadTokens(StateReader* from);
  [[nodiscard]] Status LoadPlaces(StateReader* from);
  // Checks, once the rows are known, that they have places. InvalidArgument: the context is too
  // short.
  [[nodiscard]] Status CheckPlaces() const;
  [[nodiscard]] Status LoadPolicy(StateReader* from);

  // See Sequence.
  Status ForkFrom(Sequence* other);

 private:
  // The part of SavePlaces() that a fork does not share.
  void SaveKeyPlaces(StateWriter* to) const;
  [[nodiscard]] Status LoadKeyPlaces(StateReader* from);
  [[nodiscard]] Status CheckWindows() const;

  Sequence& sequence_;
};

}  // namespace ebb

#endif  // EBB_SEQUENCE_SEQUENCE_FILE_H_
