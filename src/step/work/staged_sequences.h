// StagedSequences holds the access of a step's sequences to their rows of T1. The access ends with
// End() or with this object.
//
// Thread safety: StageLayer() may be called by the thread of each part; everything else by one
// thread.
#ifndef EBB_STEP_WORK_STAGED_SEQUENCES_H_
#define EBB_STEP_WORK_STAGED_SEQUENCES_H_

#include <span>
#include <vector>

#include "ebb/status.h"
#include "src/kv/sequence_cache.h"
#include "src/step/work/step_work.h"

namespace ebb {

class StagedSequences {
 public:
  // Keeps the sequences' accesses in `steps`, whose memory is used again by the next step.
  explicit StagedSequences(std::vector<StagedStep>* steps) : steps_(*steps) { steps_.clear(); }
  ~StagedSequences() { steps_.clear(); }
  StagedSequences(const StagedSequences&) = delete;
  StagedSequences& operator=(const StagedSequences&) = delete;

  // Begins the access of the step's next sequence. Errors: those of SequenceCache::StageStep().
  Status Add(const SequenceStep& sequence, T1Reading reading) {
    EBB_ASSIGN_OR_RETURN(StagedStep step, sequence.cache->StageStep(reading));
    steps_.push_back(std::move(step));
    return OkStatus();
  }
  // Call the StagedStep function of the same name for all sequences, or for sequence `index`.
  void StageLayer(int layer, int part) const {
    for (const StagedStep& step : steps_) step.StageLayer(layer, part);
  }
  void StageLayerOf(size_t index, int layer, int part) const {
    steps_[index].StageLayer(layer, part);
  }
  [[nodiscard]] const StagedStep& of(size_t index) const { return steps_[index]; }
  void ReleaseLayer(int layer) const {
    for (const StagedStep& step : steps_) step.ReleaseLayer(layer);
  }
  void EndLayerOf(size_t index, int layer) const { steps_[index].EndLayer(layer); }
  // Ends the access of all sequences. Returns the first error.
  [[nodiscard]] Status End() {
    Status first;
    for (StagedStep& step : steps_) {
      const Status status = step.End();
      if (first.ok()) first = status;
    }
    steps_.clear();
    return first;
  }

 private:
  std::vector<StagedStep>& steps_;
};

}  // namespace ebb

#endif  // EBB_STEP_WORK_STAGED_SEQUENCES_H_
