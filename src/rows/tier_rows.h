// TierRows reads, writes and moves the rows of one sequence in a tier of full precision between
// steps, and brings them into the memory where a step attends to them. All access to T1 goes
// through it. T0 is edited by address; rows in a device's memory, which the host cannot address,
// are copied to the host and back (Device::ReadRows(), WriteRows()).
//
// Rows are named by the slots of a stream: the row() of the page that the stream lists at page().
//
// Thread safety: none; all calls come from the engine's thread, between steps, but for those on
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

// kEditBytes bounds the bytes of rows, or pages, that are in memory at once while they are edited.
inline constexpr size_t kEditBytes = size_t{4} << 20;

class TierRows : public TierPages {
 public:
  // EditSize bounds what the next edits touch, in pages of this tier.
  struct EditSize {
    size_t pages_of_stream = 0;
    size_t pages = 0;  // of all streams
  };
  // Takes the memory that EditRows() and MoveRows() need, so that they need not fail for lack of
  // it. OutOfMemory.
  virtual Status ReserveEdits(const EditSize& size) = 0;

  // Rows lists the rows of a stream that an edit touches. Edits of several streams may share it.
  struct Rows {
    std::vector<Slot> slots;
    std::vector<uint32_t> fresh;  // ascending: pages of which nothing is wanted but these rows
    Access access = Access::kRead;
  };
  struct Edit {
    const Rows* rows = nullptr;
    std::span<const PageRef> pages;  // of the stream
  };
  // Calls edit(i, addresses) for each edit, in order, addresses[k] being where the row of slots[k]
  // can be read, or written, meanwhile. Errors, after which some edits were not called: those of a
  // file or of a device. What was edited is written all the same.
  using EditFunction = std::function<void(size_t i, std::span<const RowAddress> addresses)>;
  virtual Status EditRows(std::span<const Edit> edits, const EditFunction& edit) = 0;

  // Moves rows within streams: moves[i] within the stream of pages[i]. Errors as of EditRows().
  virtual Status MoveRows(std::span<const std::span<const SlotMove>> moves,
                          std::span<const std::span<const PageRef>> pages) = 0;

  // Return the error of a write of edited rows that fails again when it is repeated.
  // WaitForWrites() returns once all edited rows are on the disk; Check() does not wait for writes
  // under way.
  [[nodiscard]] virtual Status Check() = 0;
  virtual Status WaitForWrites() = 0;
  // Returns how long WaitForWrites() and reads waited for writes since the last call of this
  // function.
  [[nodiscard]] virtual double TakeWaitSeconds() = 0;

  // Returns the stage that brings the rows into the memory where a step attends to them; null:
  // steps attend to them in place.
  [[nodiscard]] virtual T1Stage* stage() = 0;
  // Returns the cache of pages for steps that read a selection of the rows; null: such steps read
  // rows in place.
  [[nodiscard]] virtual T1PageCache* page_cache() { return nullptr; }
  // Returns whether the host can attend to rows in place although there is a stage.
  [[nodiscard]] virtual bool MayStay() const = 0;
  [[nodiscard]] virtual size_t buffer_bytes() const = 0;
};

}  // namespace ebb

#endif  // EBB_ROWS_TIER_ROWS_H_
