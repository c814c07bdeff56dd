// T1Stage loads the T1 pages of a sequence into the memory that a step reads, one layer ahead:
// while a layer is attended to, the next layer's pages are loaded. After the last layer it loads
// the first two layers of the next step, which mostly reads the same pages. It keeps two layers at
// a time; keeping a third one gained nothing on the machine of docs/figures/performance.md.
//
// Thread safety: every part of a step calls StageLayer(); part 0 reads the pages, the others sleep
// until it has. (Letting the part that arrives first read gained nothing on a busy machine: the
// kernel reports a read's end only when the thread that began it runs.) Only part 0 may call
// ReleaseLayer() and EndLayer(). Everything else happens between steps.
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

// StagedPage names a page of a layer; T1Stage writes the page's address in the buffer to `address`.
struct StagedPage {
  PageId page = kNoPage;
  std::byte** address = nullptr;
};

class T1Stage {
 public:
  static constexpr size_t kBuffers = 2;  // each buffer holds the pages of one layer

  explicit T1Stage(std::unique_ptr<PageLoader> loader) : loader_(std::move(loader)) {}
  // Returns the bytes of the buffers for layers of at most `layer_bytes` bytes. On the host, memory
  // is used only once it is read into.
  [[nodiscard]] static uint64_t BytesFor(uint64_t layer_bytes, bool on_device);

  ~T1Stage() { Forget(); }
  T1Stage(const T1Stage&) = delete;
  T1Stage& operator=(const T1Stage&) = delete;

  using Pages = std::vector<StagedPage>;

  // Begins a step that reads the pages of `layers` in this order. A layer may be listed several
  // times, but not twice in a row. Pages that were loaded ahead for this step are not loaded again.
  // Errors: OutOfMemory. May throw std::bad_alloc.
  Status Begin(std::vector<Pages> layers);
  void StageLayer(int layer, int part);  // a repeated call has no effect
  // Must be called when the device's queue has the layer's attention, and no later work of the step
  // reads the layer's pages.
  void ReleaseLayer(int layer);
  // Must be called when all threads have read the layer's pages, so that its buffer can be reused.
  // After the last layer, this starts to load a layer of the next step, while the rest of the step
  // (logits, sampling) runs. A caller may omit the call; nothing is then loaded ahead.
  void EndLayer(int layer);
  // Ends the step. Returns the first error of the step.
  Status End();
  // Discards pages that were loaded ahead, because their contents change.
  void Forget();
  // Frees the buffers. REQUIRES: no step is running.
  void ReleaseMemory();
  // Returns the seconds that part 0 has waited for pages, in all steps.
  [[nodiscard]] double wait_seconds() const { return wait_seconds_; }
  [[nodiscard]] size_t memory_bytes() const {
    return buffers_[0].memory.size() + buffers_[1].memory.size();
  }

 private:
  struct Buffer {
    LoadedMemory memory;
    std::optional<PageLoader::Batch> loading;  // nullopt: the pages are loaded
    DeviceEvent last_read;                     // end of the reads of the buffer's former pages
  };

  [[nodiscard]] bool ReadsTheSameAhead(const std::vector<Pages>& layers) const;
  // Writes the addresses of a layer's pages in the buffer to StagedPage::address.
  void SetAddresses(int layer, const Buffer& buffer);
  // Starts to load the next layer; after the step's last one, a layer of the next step.
  void StartNext();
  [[nodiscard]] int num_layers() const { return static_cast<int>(layers_.size()); }
  // Returns the index of a layer's buffer. Layers of the next step have numbers from num_layers()
  // on.
  [[nodiscard]] size_t IndexOf(int layer) const { return (first_buffer_ + layer) % kBuffers; }
  [[nodiscard]] Buffer& BufferOf(int layer) { return buffers_[IndexOf(layer)]; }

  const std::unique_ptr<PageLoader> loader_;
  std::array<Buffer, kBuffers> buffers_;
  std::vector<Pages> layers_;
  std::vector<PageIo> requests_;  // the pages to load of one layer
  size_t first_buffer_ = 0;       // index of layer 0's buffer
  std::atomic<int> staged_ = -1;  // the last layer whose pages are loaded
  int num_begun_ = 0;             // layers of the step that are loaded or being loaded
  int num_ahead_ = 0;             // layers of the next step loaded or being loaded
  double wait_seconds_ = 0;
  Status error_;
  Status ahead_error_;  // error of loading for the next step
};

}  // namespace ebb

#endif  // EBB_ROWS_T1_STAGE_H_
