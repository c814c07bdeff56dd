// DecodeAttention computes the attention of a decode step in one layer, for several queries.
// Threads share the work.
//
// One thread calls Plan(). Then Fold() is called once for every `part` of num_parts, by any thread,
// and after all these calls have returned, Merge() is called in the same way. Neither allocates if
// Reserve() was called. A unit of work is (query, kv head, chunk of rows), so that the result does
// not depend on the number of parts. Units are ordered such that a part of Merge() mostly adds up
// the mass of rows that the part of Fold() with the same number has read; mostly the same thread
// runs both, and has these rows in its caches. Queries that see the same chunk, such as tokens of
// one sequence, are folded together if a kv head has few query heads, so that a row is read once
// for several queries; the result has the same bits as if each were folded alone. The chunks of a
// kv head's compressed rows follow those of its full-precision rows.
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

// MassTarget holds the arrays to which the mass of one query's rows is added: one array per query
// head, with rows in visible order. Query heads may share an array, which then receives their sum.
// The arrays are never cleared.
struct MassTarget {
  std::span<float* const> per_query_head;  // [num_q_heads], each [elements]; empty: no mass
  // not_finite is set to true if a state of the layer is not finite; the layer's mass is then not
  // added.
  bool* not_finite = nullptr;
};

// DecodeQuery is a token that attends to rows. The output of a kv head without rows is zero.
struct DecodeQuery {
  std::span<const RowsView> rows;  // [num_kv_heads]
  // mass_elements lists, for each kv head, to which element of the mass target each row's mass is
  // added, in ascending order. If it is empty, or empty for a head, row r is element r.
  std::span<const std::span<const uint32_t>> mass_elements;
  std::span<const CompressedRows> compressed = {};  // [num_kv_heads], or empty
  // compressed_mass_elements lists the same for the compressed rows.
  std::span<const std::span<const uint32_t>> compressed_mass_elements = {};
  const float* q = nullptr;      // [num_q_heads, head_dim]
  float* out = nullptr;          // [num_q_heads, head_dim]
  const float* sinks = nullptr;  // [num_q_heads]; null: the model has none
  // log_sums receives the log-sum-exp of each head's logits, [num_q_heads], without sinks; minus
  // infinity for a head without rows. Null: not wanted.
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

  // Reserves memory for steps of `num_queries` queries, each with at most `max_rows` rows of a kv
  // head, full and compressed together.
  void Reserve(int num_queries, size_t max_rows, int num_parts);
  // Plans the queries of a layer. Each query has a view for every kv head. One thread calls it
  // before Fold(). REQUIRES: Reserve() was called for such a step; all queries have the same number
  // of kv heads.
  void Plan(std::span<const DecodeQuery> queries);
  void Fold(int part, int num_parts);
  // Returns whether this part folds the newest full-precision rows of a kv head. The part may then
  // store the last row itself before it calls Fold().
  [[nodiscard]] bool FoldsLastChunk(int query, int kv_head, int part, int num_parts) const;
  // Merges the states of chunks to outputs, and adds up the mass if it is wanted.
  void Merge(int part, int num_parts);

 private:
  enum class Kind : uint8_t { kFull, kCompressed };
  struct Unit {
    uint32_t query;
    uint32_t chunk;  // index among the kv head's chunks of this kind
    uint16_t kv_head;
    Kind kind;
  };
  // PlannedHead holds the input of a plan from one kv head: its rows.
  struct PlannedHead {
    size_t rows;
    size_t compressed;
    size_t targets_end;  // end of its elements in the mass targets
    bool operator==(const PlannedHead&) const = default;
  };
  using ChunkRows = std::span<const std::byte*, kChunkRows>;
  // Returns where part `i` of `n` begins if `total` items are divided evenly.
  [[nodiscard]] static size_t Share(size_t total, int i, int n) { return total * i / n; }
  using UnitRange = std::pair<size_t, size_t>;
  // Returns which units this part computes.
  [[nodiscard]] UnitRange UnitsOf(int part, int num_parts) const;
  [[nodiscard]] bool PlanFits(std::span<const DecodeQuery> queries) const;
  // Returns list[kv_head]; a default value if the list is empty.
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
  void FoldRows(const Unit& unit, ChunkRows rows, ChunkRows next_rows, const float* q,
                size_t num_queries, int part, const FoldOutput& out);
  // Returns whether two queries see the same rows, except that one may see more rows at the end.
  [[nodiscard]] bool ShareRows(int query, int other, int kv_head, Kind kind) const;
  // Returns the most queries that may be folded together.
  [[nodiscard]] int MostTogether() const;
  // Returns the end of the group of queries, from `first` on and before `end`, that share rows and
  // are folded together.
  [[nodiscard]] int GroupEnd(int first, int end, int kv_head, Kind kind) const;
  // Returns how many units in [first, end), from `first` on, are to be folded together.
  [[nodiscard]] size_t NumTogether(size_t first, size_t end) const;
  void FoldTogether(std::span<const Unit> units, ChunkRows rows, ChunkRows next_rows,
                    const FoldedTogether& together, int part);
  // Returns the number of the first query head of the unit's kv head.
  [[nodiscard]] size_t FirstHead(const Unit& unit) const {
    return size_t{unit.kv_head} * shape_.QueryHeadsPerKvHead();
  }
  [[nodiscard]] int ChunkOf(const Unit& unit) const;  // index among all chunks of the kv head
  [[nodiscard]] float* POf(const Unit& unit);
  [[nodiscard]] FoldOutput OutputOf(const Unit& unit, float* p);
  void FetchP(const Unit& unit);
  void FetchMass(const Unit& unit) const;
  void FetchSlots(const Unit& unit) const;
  // Rounds the queries of the group that begins with query `group`.
  void RoundGroup(uint32_t group, int part);
  // Returns where a part keeps the rounded heads of a query, which those of the group's next query
  // follow.
  [[nodiscard]] RoundedQuery* RoundedOf(uint32_t group, uint32_t query, int kv_head, int part);
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
  AttentionShape shape_;  // shape of the layer planned last
  const size_t most_kv_heads_;
  const std::shared_ptr<DecodeStates> states_;
  std::span<const DecodeQuery> queries_;
  std::vector<Unit> units_;
  std::vector<uint32_t>
      group_begins_;                // [queries]: the first query of the group, for compressed rows
  std::vector<size_t> last_units_;  // [queries, kv heads]: units of the newest full rows
  std::vector<PlannedHead> planned_;   // [queries, kv heads]
  std::vector<uint64_t> rows_before_;  // [units + 1]: rows of all units before, as a cost
  size_t num_mass_blocks_ = 0;         // blocks of kChunkRows elements in the longest target
};

}  // namespace ebb

#endif  // EBB_ATTENTION_DECODE_H_
