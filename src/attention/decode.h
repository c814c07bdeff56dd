// One decode step's attention in one layer, for several queries, split into parts that threads
// share.
//
// Plan() sets up the work; Fold() and Merge() run it, each called once for every `part` of
// num_parts, by any thread; Merge() when all calls of Fold() have returned. Neither allocates once
// Reserve() made room. Units of work are (query, kv head, chunk of rows), so the result does not
// depend on the number of parts. They are ordered so that a part mostly adds up the mass of rows
// that the part of the same number folded, from the caches of the thread that mostly takes both.
// Queries that see the same chunk, as tokens of one sequence do, are folded together where a kv
// head has few query heads, with the bits of each alone: a row that is read serves several of them.
// The chunks of a kv head's compressed rows follow those of its full rows.
#ifndef EBB_ATTENTION_DECODE_H_
#define EBB_ATTENTION_DECODE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "src/attention/attention.h"
#include "src/attention/compressed.h"
#include "src/attention/decode_states.h"

namespace ebb {

// Receives the mass of one query's rows: one array per query head, rows in visible order. Heads
// may share an array, which then holds their sum; it is added to, never cleared.
struct MassTarget {
  std::span<float* const> per_query_head;  // [num_q_heads], each [elements]; empty: no mass
  // Set when the layer's state is not finite: its mass was not added (000, 3.1).
  bool* not_finite = nullptr;
};

// One query: a token that attends to rows. A kv head without any leaves zeros.
struct DecodeQuery {
  std::span<const RowsView> rows;  // [num_kv_heads]
  // Per kv head: the element of the mass targets that each of its rows counts in, ascending. An
  // empty span, or none for any head: row r in element r.
  std::span<const std::span<const uint32_t>> mass_elements;
  std::span<const CompressedRows> compressed = {};  // [num_kv_heads], or none
  // As `mass_elements`, for the compressed rows.
  std::span<const std::span<const uint32_t>> compressed_mass_elements = {};
  const float* q = nullptr;      // [num_q_heads, head_dim]
  float* out = nullptr;          // [num_q_heads, head_dim]
  const float* sinks = nullptr;  // [num_q_heads]; null: there are none
  // [num_q_heads], or null: ln of the sum of exp(logit), minus infinity of no row. Sinks are not
  // in it.
  float* log_sums = nullptr;
  MassTarget mass;
};

class DecodeAttention {
 public:
  // `shape` has the most kv heads of any layer; `states` may be shared with others that attend at
  // other times.
  DecodeAttention(const AttentionKernel& kernel, const AttentionShape& shape,
                  std::shared_ptr<DecodeStates> states = std::make_shared<DecodeStates>());
  ~DecodeAttention();
  DecodeAttention(const DecodeAttention&) = delete;
  DecodeAttention& operator=(const DecodeAttention&) = delete;

  // Makes room for a step in which no query has more than `max_rows` rows in a kv head, compressed
  // ones among them.
  void Reserve(int num_queries, size_t max_rows, int num_parts);
  // The queries of a layer, which have a view for each of its kv heads. REQUIRES: room reserved; as
  // many kv heads for each query. Called by one thread before Fold().
  void Plan(std::span<const DecodeQuery> queries);
  void Fold(int part, int num_parts);
  // Whether this part folds the newest full rows of a kv head, and so may store the last one first.
  [[nodiscard]] bool FoldsLastChunk(int query, int kv_head, int part, int num_parts) const;
  // The outputs, and the mass where it is wanted.
  void Merge(int part, int num_parts);

 private:
  enum class Kind : uint8_t { kFull, kCompressed };
  struct Unit {
    uint32_t query;
    uint32_t chunk;  // of the kv head's rows of this kind
    uint16_t kv_head;
    Kind kind;
  };
  // The counts of rows that a plan depends on.
  struct PlannedHead {
    size_t rows;
    size_t compressed;
    size_t targets_end;  // the first element of the mass targets after those of all rows
    bool operator==(const PlannedHead&) const = default;
  };
  using ChunkRows = std::span<const std::byte*, kChunkRows>;
  // The share of `total` that part `i` of `n` takes.
  [[nodiscard]] static size_t Share(size_t total, int i, int n) { return total * i / n; }
  using UnitRange = std::pair<size_t, size_t>;
  // The units that are computed by this part.
  [[nodiscard]] UnitRange UnitsOf(int part, int num_parts) const;
  [[nodiscard]] bool PlanFits(std::span<const DecodeQuery> queries) const;
  // list[kv_head], or a default where the list is empty.
  template <typename T>
  [[nodiscard]] static T OfHead(std::span<const T> list, int kv_head) {
    return list.empty() ? T() : list[kv_head];
  }
  [[nodiscard]] static PlannedHead HeadToPlan(const DecodeQuery& query, int kv_head);
  [[nodiscard]] static std::span<const uint32_t> MassElements(const DecodeQuery& query, int kv_head,
                                                              Kind kind);
  void PlanHeads(int query);
  // Plans the units of the queries [begin, end).
  void PlanUnits(int begin, int end, Kind kind);
  // Plans those of a kv head's block of chunks.
  void PlanBlock(int begin, int end, int kv_head, int block, Kind kind);
  void PlanUnit(const Unit& unit);
  [[nodiscard]] std::pair<uint32_t, uint32_t> RowsOf(const Unit& unit) const;
  void LocateUnit(const Unit& unit, ChunkRows rows) const;
  void FoldUnit(const Unit& unit, ChunkRows rows, ChunkRows next_rows, const RoundedQuery* rounded,
                float* p);
  // Whether two queries see the same rows, but for the last ones.
  [[nodiscard]] bool ShareRows(int query, int other, int kv_head, Kind kind) const;
  // Queries that may be folded together.
  [[nodiscard]] int MostTogether() const;
  // How many units from `first` on, of those before `end`, are folded together.
  [[nodiscard]] size_t NumTogether(size_t first, size_t end) const;
  void FoldTogether(std::span<const Unit> units, ChunkRows rows, ChunkRows next_rows,
                    const FoldedTogether& together);
  [[nodiscard]] int ChunkOf(const Unit& unit) const;  // among all of the kv head
  [[nodiscard]] float* POf(const Unit& unit);
  [[nodiscard]] FoldOutput OutputOf(const Unit& unit, float* p);
  [[nodiscard]] FoldInput FullRows(const Unit& unit, ChunkRows rows, ChunkRows next_rows,
                                   const float* q, size_t num_heads) const;
  void FetchP(const Unit& unit);
  void FetchMass(const Unit& unit) const;
  void FetchSlots(const Unit& unit) const;
  [[nodiscard]] const RoundedQuery* RoundQueries(int query, int part);
  [[nodiscard]] MergeInput StatesOf(int query, int q_head) const;
  void MergeHead(int query, int q_head, const float* weights);
  [[nodiscard]] static float LogSum(const MergeInput& states);
  void AddMass(int query, int part, int num_parts, float* weights);
  void AddMassOfRows(int query, int kv_head, Kind kind, std::pair<size_t, size_t> elements,
                     const float* weights);
  void AddMassByElement(MassInput rows, std::span<const uint32_t> elements, float* target) const;
  [[nodiscard]] size_t NumRows(int query, int kv_head, Kind kind) const;
  [[nodiscard]] int NumChunks(int query, int kv_head, Kind kind) const;

  const AttentionKernel& kernel_;
  AttentionShape shape_;  // of the layer that was planned last
  const size_t most_kv_heads_;
  const std::shared_ptr<DecodeStates> states_;
  std::span<const DecodeQuery> queries_;
  std::vector<Unit> units_;
  std::vector<size_t> last_units_;     // [queries, kv heads]: those of the newest full rows
  std::vector<PlannedHead> planned_;   // [queries, kv heads]
  std::vector<uint64_t> rows_before_;  // [units + 1]: rows in the units before, by their cost
  size_t num_mass_blocks_ = 0;         // of kChunkRows elements, in the longest mass target
};

}  // namespace ebb

#endif  // EBB_ATTENTION_DECODE_H_
