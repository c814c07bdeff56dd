// Saves a sequence's cache to a file and loads it: first its tables as one list of numbers, then
// its pages, which are read from and written to their tiers directly. Rows of T2 keep their codes.
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

// StatePage names a page of the file. Pages are in ascending order of table, (layer, kv head),
// tier, and number within the table's pages of that tier.
struct StatePage {
  int layer = 0;
  int kv_head = 0;
  Tier tier = Tier::kT0;
  uint32_t number = 0;

  [[nodiscard]] std::string ToString() const;  // "page 3 of T1 of layer 0, kv head 2"
};

// WriteStatePage and ReadStatePage write and read the present rows of a page in the order of their
// slots: of a page in full precision a key and a value of the cache's format for each row, of a
// page of T2 a record of CompressedFormat.
using WriteStatePage = std::function<Status(const StatePage& page, std::span<const std::byte>)>;
using ReadStatePage = std::function<Status(const StatePage& page, std::span<std::byte>)>;

// StatePages counts a cache's pages and their bytes.
struct StatePages {
  uint64_t num_pages = 0;
  uint64_t num_bytes = 0;
};

struct SequenceState {
  // Saves the tables and returns the number of pages. Errors: that of a broken cache; that of T1's
  // file if rows moved there cannot be written.
  static Result<StatePages> SaveTables(const SequenceCache& cache, StateWriter* tables);
  // Saves the pages by calling `write`. Errors: those of a file, and those of `write`.
  static Status SavePages(SequenceCache* cache, const WriteStatePage& write);

  // LoadTables() and then LoadPages() fill an empty cache with the saved rows of the tokens before
  // `end`; after an error the cache can only be destroyed. `check` receives the numbers of pages
  // before memory is allocated. Errors: Corrupt if no cache can have saved this; T0Full, T1Full or
  // OutOfMemory if a tier has no room.
  using CheckPages = std::function<Status(const StatePages& pages)>;
  static Status LoadTables(Position end, const CheckPages& check, StateReader* tables,
                           SequenceCache* cache);
  // Reads the pages by calling `read`. Errors: also those of a file, and those of `read`.
  static Status LoadPages(SequenceCache* cache, const ReadStatePage& read);

 private:
  struct Pages;
  struct Tables;
  [[nodiscard]] static StatePages CountPages(const SequenceCache& cache);
};

}  // namespace ebb

#endif  // EBB_KV_SEQUENCE_STATE_H_
