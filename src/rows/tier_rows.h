// TierRows reads, writes and moves the full-precision rows of one sequence in a tier, between
// steps, and brings them to the memory in which a step reads them. All access to T1 goes through
// it. Rows of T0 are edited by address or, in a device's memory, which the host cannot address, by
// copies (Device::ReadRows(), WriteRows()).
//
// A row is named by its slot in a stream: slot.row() is the row within the page that the stream
// lists at slot.page().
//
// Thread safety: none; all calls come from the engine's thread, between steps, except those to
// stage().
#ifndef EBB_ROWS_TIER_ROWS_H_
#define EBB_ROWS_TIER_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ebb/status.h"
#include "src/attention/rows.h"
#include "src/rows/row_address.h"
#include "src/rows/tier_pages.h"

namespace ebb {

class T1PageCache;
class T1Stage;

// kEditBytes is the most bytes of rows, or of pages, that edits have in memory at once.
inline constexpr size_t kEditBytes = size_t{4} << 20;

class TierRows : public TierPages {
 public:
  // EditSize is the most pages of this tier that the next edits touch.
  struct EditSize {
    size_t pages_of_stream = 0;
    size_t pages = 0;  // in all streams together
  };
  // Allocates the memory that EditRows() and MoveRows() need, so that they cannot lack it. Errors:
  // OutOfMemory.
  virtual Status ReserveEdits(const EditSize& size) = 0;

  // Rows lists the rows of a stream that an edit reads or writes. Edits of several streams may
  // share one.
  struct Rows {
    std::vector<Slot> slots;
    std::vector<uint32_t> fresh;  // ascending: pages whose other rows need not be kept
    Access access = Access::kRead;
  };
  struct Edit {
    const Rows* rows = nullptr;
    std::span<const PageRef> pages;  // the pages of the edit's stream
  };
  // Calls edit(i, addresses) for each edit, in order. During the call, the row of slots[k] can be
  // read or written at addresses[k]. Errors: the errors of a file or a device; some edits were not
  // called then, but rows that were edited are written.
  using EditFunction = std::function<void(size_t i, std::span<const RowAddress> addresses)>;
  virtual Status EditRows(std::span<const Edit> edits, const EditFunction& edit) = 0;

  // Moves rows within streams: moves[i] are moves in the stream with pages[i]. Errors: as
  // EditRows().
  virtual Status MoveRows(std::span<const std::span<const SlotMove>> moves,
                          std::span<const std::span<const PageRef>> pages) = 0;

  // Write edited rows again whose write has failed, and return the error if it fails again.
  // WaitForWrites() also waits until all edited rows are on the disk; Check() does not wait.
  [[nodiscard]] virtual Status Check() = 0;
  virtual Status WaitForWrites() = 0;
  // Returns the seconds that WaitForWrites() and reads waited for writes since the last call of
  // this function.
  [[nodiscard]] virtual double TakeWaitSeconds() = 0;

  // Returns the stage that loads rows into the memory in which a step reads them; null: steps read
  // them in place.
  [[nodiscard]] virtual T1Stage* stage() = 0;
  // Returns the page cache of steps that read only selected rows; null: such steps read rows in
  // place.
  [[nodiscard]] virtual T1PageCache* page_cache() { return nullptr; }
  // Returns whether the host can attend to the rows in place, although stage() could load them.
  [[nodiscard]] virtual bool MayStay() const = 0;
  [[nodiscard]] virtual size_t buffer_bytes() const = 0;
};

}  // namespace ebb

#endif  // EBB_ROWS_TIER_ROWS_H_
