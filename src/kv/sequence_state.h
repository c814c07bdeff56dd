// A sequence's cache on its way to and from a file: its tables as one list of numbers, then its
// pages, which go straight to and from the tier that they lie in. Rows of T2 keep their codes.
#ifndef EBB_KV_SEQUENCE_STATE_H_
#define EBB_KV_SEQUENCE_STATE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "ebb/state.h"
#include "ebb/status.h"
#include "ebb/types.h"
#include "src/kv/sequence_cache.h"

namespace ebb {

// Which page of the file it is. Pages come in ascending order of table, (layer, kv head), tier, and
// number within that tier of the table.
struct StatePage {
  int layer = 0;
  int kv_head = 0;
  Tier tier = Tier::kT0;
  uint32_t number = 0;

  [[nodiscard]] std::string ToString() const;  // "page 3 of T1 of layer 0, kv head 2"
};

// The rows of a page that are there, in the order of their slots: of a full page each a key and a
// value of the cache's format, of T2 each a record of CompressedFormat.
using WriteStatePage = std::function<Status(const StatePage& page, std::span<const std::byte>)>;
using ReadStatePage = std::function<Status(const StatePage& page, std::span<std::byte>)>;

// The numbers of a cache's pages.
struct StatePages {
  uint64_t num_pages = 0;
  uint64_t num_bytes = 0;
};

struct SequenceState {
  // The cache's error when it is broken, and that of its file when what was moved there cannot be
  // written.
  static Result<StatePages> SaveTables(const SequenceCache& cache, StateWriter* tables);
  // Errors: those of a file, and of `write`.
  static Status SavePages(SequenceCache* cache, const WriteStatePage& write);

  // Both together fill a cache that holds nothing yet, for the tokens before `end`; after an error
  // it is of no use. Corrupt when no such cache was saved, T0Full, T1Full or OutOfMemory when a
  // tier has no room for it. `check` gets the numbers of the pages before memory is taken for them.
  using CheckPages = std::function<Status(const StatePages& pages)>;
  static Status LoadTables(Position end, const CheckPages& check, StateReader* tables,
                           SequenceCache* cache);
  // Also errors of a file, and of `read`.
  static Status LoadPages(SequenceCache* cache, const ReadStatePage& read);

 private:
  struct Pages;
  struct Tables;
  [[nodiscard]] static StatePages CountPages(const SequenceCache& cache);
};

}  // namespace ebb

#endif  // EBB_KV_SEQUENCE_STATE_H_
