// Brings the T1 pages of a sequence from their file into memory for a step, ahead of the layers:
// while a layer is attended to, the next one is being read. Two layers' pages are in memory at a
// time; a third one, on the machine of docs/performance.md, gained nothing.
//
// Thread safety: StageLayer() is called by every thread of a step; thread 0 reads, the others sleep
// until it has. Everything else happens between steps.
#ifndef EBB_KV_T1_STAGE_H_
#define EBB_KV_T1_STAGE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "ebb/status.h"
#include "src/io/io_memory.h"
#include "src/io/page_file.h"

namespace ebb {

class T1Stage {
 public:
  explicit T1Stage(PageFile* file) : file_(file) {}
  ~T1Stage() { Forget(); }
  T1Stage(const T1Stage&) = delete;
  T1Stage& operator=(const T1Stage&) = delete;

  // A page of a layer, and where its address is wanted.
  struct Page {
    uint32_t file_page = 0;
    std::byte** address = nullptr;
  };
  using Pages = std::vector<Page>;

  // A step over layers whose pages are these; ResourceExhausted when there is no memory for
  // them. What was read ahead for it already is kept.
  Status Begin(std::vector<Pages> layers);
  void StageLayer(int layer, int thread);
  // The first error of the step. Begins to read the first layers of the next step, which mostly
  // have the same pages.
  Status End();
  // The pages change: what was read ahead is stale.
  void Forget();
  // How long thread 0 waited for layers, ever.
  [[nodiscard]] double wait_seconds() const { return wait_seconds_; }
  [[nodiscard]] size_t memory_bytes() const {
    size_t bytes = 0;
    for (const Buffer& buffer : buffers_) bytes += buffer.memory.size();
    return bytes;
  }

 private:
  static constexpr int kAhead = 1;  // layers
  static constexpr int kBuffers = kAhead + 1;
  struct Buffer {
    IoMemory memory;
    std::optional<PageFile::Ticket> ticket;
  };
  Status Grow(Buffer* buffer, size_t size);
  void Place(int layer);
  void Start(int layer);
  void Wait(int layer);
  [[nodiscard]] int num_layers() const { return static_cast<int>(layers_.size()); }
  [[nodiscard]] Buffer& BufferOf(int layer) { return buffers_[layer % kBuffers]; }

  PageFile* const file_;
  std::vector<Pages> layers_;
  std::array<Buffer, kBuffers> buffers_;
  std::atomic<int> staged_ = -1;  // the last layer whose pages are there
  bool ahead_ = false;            // the first layers of the next step are being read
  double wait_seconds_ = 0;
  Status error_;
};

}  // namespace ebb

#endif  // EBB_KV_T1_STAGE_H_
