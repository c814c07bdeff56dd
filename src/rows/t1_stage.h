// T1Stage loads the T1 pages of a sequence into the memory that a step reads, one layer ahead:
// while a layer is attended to, the pages of the next one are loaded, and after the last layer
// those of the next step's first two layers, which mostly are the same pages. It stages two layers
// at a time; staging a third one gained nothing on the machine of docs/figures/performance.md.
//
// Thread safety: StageLayer() is called for every part of a step; part 0 reads, the others sleep
// until it has. (Letting the first part to arrive read instead gained nothing beside a busy
// neighbour: the kernel reports a read's end only when the thread that began it runs.)
// ReleaseLayer() and EndLayer() are part 0's too. Everything else happens between steps.
#ifndef EBB_ROWS_T1_STAGE_H_
#define EBB_ROWS_T1_STAGE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ebb/status.h"
#include "src/rows/page_loader.h"

namespace ebb {

// StagedPage names a page of a layer, and where T1Stage writes its address in the buffer.
struct StagedPage {
  PageId page = kNoPage;
  std::byte** address = nullptr;
};

class T1Stage {
 public:
  static constexpr size_t kBuffers = 2;  // each holds the pages of one layer at a time

  explicit T1Stage(std::unique_ptr<PageLoader> loader) : loader_(std::move(loader)) {}
  // Returns the bytes of the buffers for layers of so many bytes at most. The system gives the host
  // memory only as it is read into.
  [[nodiscard]] static uint64_t BytesFor(uint64_t layer_bytes, bool on_device);

  ~T1Stage() { Forget(); }
  T1Stage(const T1Stage&) = delete;
  T1Stage& operator=(const T1Stage&) = delete;

  using Pages = std::vector<StagedPage>;

  // Begins a step that reads the pages of `layers` in this order. A layer may be in the list
  // several times, but not twice in a row. Pages that were loaded ahead for the step are not loaded
  // again. Errors: OutOfMemory. May throw std::bad_alloc.
  Status Begin(std::vector<Pages> layers);
  void StageLayer(int layer, int part);  // again: no effect
  // Announces that the device's queue holds the layer's attention, and that no later work of the
  // step reads its pages.
  void ReleaseLayer(int layer);
  // Announces that all threads have read the layer's pages, so that their buffers may be reused.
  // After the last layer this starts to load one more layer of the next step, while the rest of the
  // step (logits, sampling) runs. A caller may leave the call out; nothing is then loaded ahead.
  void EndLayer(int layer);
  // Ends the step. Returns its first error.
  Status End();
  // Discards pages that were loaded ahead, because their contents change.
  void Forget();
  // Frees the buffers. Called between steps.
  void ReleaseMemory();
  // Returns how long part 0 has waited for layers, in all steps.
  [[nodiscard]] double wait_seconds() const { return wait_seconds_; }
  [[nodiscard]] size_t memory_bytes() const {
    return buffers_[0].memory.size() + buffers_[1].memory.size();
  }

 private:
  struct Buffer {
    LoadedMemory memory;
    std::optional<PageLoader::Batch> loading;  // nullopt: the pages are there
    DeviceEvent last_read;                     // of the pages before
  };

  [[nodiscard]] bool ReadsTheSameAhead(const std::vector<Pages>& layers) const;
  // Writes the pages' addresses in the buffer to StagedPage::address.
  void SetAddresses(int layer, const Buffer& buffer);
  // Starts to load the next layer, or, after the step's last one, a layer of the next step.
  void StartNext();
  [[nodiscard]] int num_layers() const { return static_cast<int>(layers_.size()); }
  // Returns the buffer of a layer. Layers of the next step are numbered on from the step's last
  // one.
  [[nodiscard]] size_t IndexOf(int layer) const { return (first_buffer_ + layer) % kBuffers; }
  [[nodiscard]] Buffer& BufferOf(int layer) { return buffers_[IndexOf(layer)]; }

  const std::unique_ptr<PageLoader> loader_;
  std::array<Buffer, kBuffers> buffers_;
  std::vector<Pages> layers_;
  std::vector<PageIo> requests_;  // of a layer
  size_t first_buffer_ = 0;       // of layer 0
  std::atomic<int> staged_ = -1;  // the last layer whose pages are there
  int num_begun_ = 0;             // layers of the step whose pages are there or on their way
  int num_ahead_ = 0;             // layers of the next step that are there or on their way
  double wait_seconds_ = 0;
  Status error_;
  Status ahead_error_;  // of reading for the next step
};

}  // namespace ebb

#endif  // EBB_ROWS_T1_STAGE_H_
