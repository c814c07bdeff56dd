// What the cache costs, exactly: every byte that is mapped for rows and every byte of the tables
// that describe them.
#ifndef EBB_ACCOUNTING_H_
#define EBB_ACCOUNTING_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "ebb/types.h"

namespace ebb {

// One tier of one sequence. Pages of a T1 in a file are bytes of that file.
struct TierAccounting {
  int64_t rows = 0;       // (layer, kv head, token) triples that are visible
  size_t row_bytes = 0;   // of those rows: rows * bytes of a key and a value
  size_t page_bytes = 0;  // of the pages that hold them, holes included
  // Those of page_bytes that other sequences hold too: ArenaAccounting counts them once.
  size_t shared_page_bytes = 0;
  // page_bytes, of which a page that k sequences hold counts as a kth.
  size_t fair_page_bytes = 0;
};

// Rows that changed their tier, evictions left out. Down is away from T0.
struct MoveAccounting {
  int64_t rows_down = 0;
  int64_t rows_up = 0;
  size_t bytes_down = 0;        // of the rows as they were
  size_t bytes_up = 0;          // of the rows as they became
  int64_t rows_compressed = 0;  // of rows_down, those that went to T2
  double seconds = 0;           // in which the sequence could not step
  double seconds_down = 0;      // of them, copying rows down and
  double seconds_up = 0;        // up; the rest plans and makes room
};

// One sequence.
struct CacheAccounting {
  std::array<TierAccounting, kNumTiers> tiers;
  // Of a lossless session with a T1: the newest verified rows, on their way there. Their pages are
  // part of staging_bytes, not of T0, which is the draft's.
  TierAccounting newest;
  MoveAccounting moves;
  int64_t rows_evicted =
      0;  // ever, those that left a window among them; a roll-back evicts nothing
  // Slots, positions, free lists, page tables, text to look up in, first keys of rows that turn.
  size_t table_bytes = 0;
  size_t staging_bytes = 0;  // memory into which T1 is staged or edited
  size_t ledger_bytes = 0;   // of the ledger, where one was asked for
  int64_t num_tables = 0;    // token tables; 1 while all groups agree
};

// An arena, shared by sequences.
struct ArenaAccounting {
  size_t reserved_bytes = 0;  // mapped from the system now
  size_t used_bytes = 0;      // in pages that some sequence holds
  size_t peak_bytes = 0;      // largest reserved_bytes so far
  size_t pledged_bytes = 0;   // of T0: kept for the floors of sessions that do not use it yet
  size_t cap_bytes = 0;
};

}  // namespace ebb

#endif  // EBB_ACCOUNTING_H_
