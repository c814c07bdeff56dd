// DecodeAttention computes a decode step's attention in one layer, for several queries, in parts
// that threads share.
//
// Plan() sets up the work. Fold() and then Merge() run it: each is called once for every `part` of
// num_parts, by any thread, and Merge() only after all calls of Fold() have returned. Neither
// allocates once Reserve() was called. A unit of work is (query, kv head, chunk of rows), so that
// the result does not depend on the number of parts. Units are ordered such that a part mostly adds
// up the mass of rows that the part of the same number folded; the same thread mostly runs both,
// and still has these rows in its caches. Queries that see the same chunk, such as tokens of one
// sequence, are folded together if a kv head has few query heads, so that one read of a row serves
// several queries; each gets the bits that it gets alone. The chunks of a kv head's compressed rows
// follow those of its full rows.
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

// MassTarget receives the mass of one query's rows: one array per query head, with rows in visible
// order. Query heads may share an array, which then holds their sum. Mass is added to the arrays,
// which are never cleared.
struct MassTarget {
  std::span<float* const> per_query_head;  // [num_q_heads], each [elements]; empty: no mass
  // not_finite is set to true if a state of the layer is not finite; the layer's mass is then not
  // added (000, 3.1).
  bool* not_finite = nullptr;
};

// DecodeQuery is one query: a token that attends to rows. The output of a kv head without rows is
// zero.
struct DecodeQuery {
  std::span<const RowsView> rows;  // [num_kv_heads]
  // mass_elements lists, per kv head, the element of the mass targets to which each row's mass is
  // added, ascending. If it is empty, or empty for a head, row r is element r.
  std::span<const std::span<const uint32_t>> mass_elements;
  std::span<const CompressedRows> compressed = {};  // [num_kv_heads], or none
  // compressed_mass_elements is the same for the compressed rows.
  std::span<const std::span<const uint32_t>> compressed_mass_elements = {};
  const float* q = nullptr;      // [num_q_heads, head_dim]
  float* out = nullptr;          // [num_q_heads, head_dim]
  const float* sinks = nullptr;  // [num_q_heads]; null: there are none
  // log_sums receives the log-sum-exp of the logits, [num_q_heads], minus infinity for a head
  // without rows. Sinks do not count in it. Null: not wanted.
  float* log_sums = nullptr;
  MassTarget mass;
};

class DecodeAttention {
 public:
  // Creates attention for layers of at most shape.num_kv_heads kv heads. Several objects that
  // attend at different times may share `states`.
  DecodeAttention(const AttentionKernel& kernel, const AttentionShape& shape,
                  std::shared_ptr<DecodeStates> states = std::make_shared<DecodeStates>());
  ~DecodeAttention();
  DecodeAttention(const DecodeAttention&) = delete;
  DecodeAttention& operator=(const DecodeAttention&) = delete;

  // Reserves memory for a step of `num_queries` queries, each with at most `max_rows` rows in a kv
  // head, full and compressed.
  void Reserve(int num_queries, size_t max_rows, int num_parts);
  // Plans the queries of a layer, each of which has a view for every kv head of the layer.
  // REQUIRES: Reserve() made room; all queries have the same number of kv heads. One thread calls
  // it before Fold().
  void Plan(std::span<const DecodeQuery> queries);
  void Fold(int part, int num_parts);
  // Returns whether this part folds the newest full rows of a kv head, and so may store the last
  // row before it calls Fold().
  [[nodiscard]] bool FoldsLastChunk(int query, int kv_head, int part, int num_parts) const;
  // Merges the chunk states to outputs, and adds up the mass if it is wanted.
  void Merge(int part, int num_parts);

 private:
  enum class Kind : uint8_t { kFull, kCompressed };
  struct Unit {
    uint32_t query;
    uint32_t chunk;  // numbered among the kv head's rows of this kind
    uint16_t kv_head;
    Kind kind;
  };
  // Counts the rows of a kv head that a plan depends on.
  struct PlannedHead {
    size_t rows;
    size_t compressed;
    size_t targets_end;  // the first element of the mass targets after those of all rows
    bool operator==(const PlannedHead&) const = default;
  };
  using ChunkRows = std::span<const std::byte*, kChunkRows>;
  // Returns the beginning of part `i` of `n` in `total`.
  [[nodiscard]] static size_t Share(size_t total, int i, int n) { return total * i / n; }
  using UnitRange = std::pair<size_t, size_t>;
  // Returns the range of units that this part computes.
  [[nodiscard]] UnitRange UnitsOf(int part, int num_parts) const;
  [[nodiscard]] bool PlanFits(std::span<const DecodeQuery> queries) const;
  // Returns list[kv_head], or a default if the list is empty.
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
  // Plans the units of one block of chunks of a kv head.
  void PlanBlock(int begin, int end, int kv_head, int block, Kind kind);
  void PlanUnit(const Unit& unit);
  [[nodiscard]] std::pair<uint32_t, uint32_t> RowsOf(const Unit& unit) const;
  void LocateUnit(const Unit& unit, ChunkRows rows) const;
  void FoldUnit(const Unit& unit, ChunkRows rows, ChunkRows next_rows, const RoundedQuery* rounded,
                float* p);
  // Returns whether two queries see the same rows, apart from the last ones.
  [[nodiscard]] bool ShareRows(int query, int other, int kv_head, Kind kind) const;
  // Returns how many queries may be folded together.
  [[nodiscard]] int MostTogether() const;
  // Returns how many units from `first` on, before `end`, are folded together.
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
  size_t num_mass_blocks_ = 0;         // blocks of kChunkRows elements in the longest mass target
};

}  // namespace ebb

#endif  // EBB_ATTENTION_DECODE_H_
