// Brings the T1 pages of a sequence, from their file or from the host's memory, to where a step
// reads them, ahead of the layers: while a layer is attended to, the next one is on its way, and
// after the last layer the first two of the next step, which mostly has the same pages. Two
// layers' pages are staged at a time; a third one of a file's, on the machine of
// docs/figures/performance.md, gained nothing.
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

// A page of a layer: which one it is, and where its address in the buffer is wanted.
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

  // A step over layers whose pages are these, in the order that it reads them; a layer may be in
  // the list several times, though not twice in a row; OutOfMemory when there is no memory
  // for them. What was read ahead for it already is kept.
  Status Begin(std::vector<Pages> layers);
  void StageLayer(int layer, int part);  // again: no effect
  // The layer's attention was launched: nothing later reads its pages.
  void ReleaseLayer(int layer);
  // Every part has read the layer's pages. After the last layer, whose buffer is free now, the rest
  // of the step (logits, sampling) may take longer than reading a layer. It need not be called.
  void EndLayer(int layer);
  // The first error of the step.
  Status End();
  // The pages change: what was read ahead is stale.
  void Forget();
  // Gives the buffers' memory back between steps.
  void ReleaseMemory();
  // How long part 0 waited for layers, ever.
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
  // Tells each page of the layer where it lies in the buffer.
  void SetAddresses(int layer, const Buffer& buffer);
  // Begins to read the next layer; after the step's last one, the next step's layers.
  void StartNext();
  [[nodiscard]] int num_layers() const { return static_cast<int>(layers_.size()); }
  // The buffer of a layer; the next step's layers count on from the step's last one.
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
