// Brings the T1 pages of a sequence, from their file or from the host's memory, to where a step
// reads them, ahead of the layers: while a layer is attended to, the next one is on its way. Two
// layers' pages are staged at a time; a third one of a file's, on the machine of
// docs/performance.md, gained nothing.
//
// Thread safety: StageLayer() is called by every thread of a step; thread 0 reads, the others sleep
// until it has. ReleaseLayer() is thread 0's too. Everything else happens between steps.
#ifndef EBB_KV_T1_STAGE_H_
#define EBB_KV_T1_STAGE_H_

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "ebb/status.h"
#include "src/kv/stage_reader.h"

namespace ebb {

class T1Stage {
 public:
  explicit T1Stage(std::unique_ptr<StageReader> reader) : reader_(std::move(reader)) {}
  ~T1Stage() { Forget(); }
  T1Stage(const T1Stage&) = delete;
  T1Stage& operator=(const T1Stage&) = delete;

  using Pages = std::vector<StagedPage>;

  // A step over layers whose pages are these; ResourceExhausted when there is no memory for
  // them. What was read ahead for it already is kept.
  Status Begin(std::vector<Pages> layers);
  void StageLayer(int layer, int thread);
  // The layer's attention was launched: nothing later reads its pages.
  void ReleaseLayer(int layer);
  // The first error of the step. Since its last layer's attention the first one of the next step,
  // which mostly has the same pages, is on its way, but of a model of one layer.
  Status End();
  // The pages change: what was read ahead is stale.
  void Forget();
  // How long thread 0 waited for layers, ever.
  [[nodiscard]] double wait_seconds() const { return wait_seconds_; }
  [[nodiscard]] size_t memory_bytes() const {
    size_t bytes = 0;
    for (int i = 0; i < kStageBuffers; ++i) bytes += reader_->memory_bytes(i);
    return bytes;
  }

 private:
  [[nodiscard]] bool ReadsTheSameAhead(const std::vector<Pages>& layers) const;
  void Place(int layer, int buffer);
  Status Start(int layer, int buffer);
  [[nodiscard]] int num_layers() const { return static_cast<int>(layers_.size()); }
  [[nodiscard]] int BufferOf(int layer) const { return (first_buffer_ + layer) % kStageBuffers; }

  const std::unique_ptr<StageReader> reader_;
  std::vector<Pages> layers_;
  int first_buffer_ = 0;          // of layer 0
  std::atomic<int> staged_ = -1;  // the last layer whose pages are there
  Status ahead_status_;           // of beginning with the next step's
  bool ahead_ = false;            // the first layer of the next step is being read
  double wait_seconds_ = 0;
  Status error_;
};

}  // namespace ebb

#endif  // EBB_KV_T1_STAGE_H_
