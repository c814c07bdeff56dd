// Attention of one token over rows that lie anywhere in a device's memory, as two nodes of ggml's
// graph that ebb computes itself, where the backend has a way for that: rows are read where they
// lie, as lists name them, and mass comes out of the same pass. `fold` splits the rows of a kv
// head, in order of position, and folds each split; `merge` joins them.
//
// Results depend on which rows are visible and on their number, not on where they lie. How rows are
// split follows the longest list, rounded up.
#ifndef EBB_STEP_DEVICE_ROW_ATTENTION_H_
#define EBB_STEP_DEVICE_ROW_ATTENTION_H_

#include <cstddef>
#include <cstdint>

struct ggml_context;
struct ggml_tensor;

namespace ebb {

// DeviceOp begins the user data of a node of GGML_OP_CUSTOM that a backend can run.
struct DeviceOp {
  // Launches the node on a queue of the backend; of CUDA, a cudaStream_t.
  void (*launch)(const DeviceOp* op, const ggml_tensor* node, void* queue) = nullptr;
};

// kRowsOfPage equals kRowsPerPage, whose header is not C++17, as this header and the kernels have
// to be.
inline constexpr int kRowsOfPage = 64;

// RowFold says how a fold splits the rows of a token, and how its result is laid out. It is the
// user data of the fold's node.
struct RowFold : DeviceOp {
  enum class Mass : uint8_t { kNone, kPerLayer, kPerKvHead, kPerQueryHead };

  int head_dim = 0;
  int kv_heads = 0;
  int group = 0;      // query heads of a kv head
  int num_rows = 0;   // of the longest list, rounded up
  int num_pages = 0;  // of a kv head's list of pages; 0: lists name rows
  // The slots of a kv head begin this many elements behind the slots of the head before.
  int slot_stride = 0;
  Mass mass = Mass::kNone;
  float scale = 0;
  float soft_cap = 0;  // a scaled logit x counts as soft_cap * tanh(x / soft_cap); 0: as x

  [[nodiscard]] int q_heads() const { return kv_heads * group; }
  // kSplitsOfAllHeads is about how many splits of all kv heads keep a large device busy. It is the
  // same for all devices, and so are the splits.
  static constexpr int kSplitsOfAllHeads = 384;
  static constexpr int kLeastRowsOfSplit = 64;
  [[nodiscard]] int RowsOfSplit() const {
    const int rows = (num_rows * kv_heads + kSplitsOfAllHeads - 1) / kSplitsOfAllHeads;
    return (rows + kLeastRowsOfSplit - 1) / kLeastRowsOfSplit * kLeastRowsOfSplit;
  }
  [[nodiscard]] int NumSplits() const { return (num_rows + RowsOfSplit() - 1) / RowsOfSplit(); }

  // Return the sizes of the parts of the fold's result, F32, in this order: sums of values [splits,
  // query heads, head_dim], each weighted by 2^(logit - the split's largest); largest logits and
  // sums of weights [splits, query heads, 2]; if mass is wanted, logits [query heads, num_rows].
  // Logits are to base 2.
  [[nodiscard]] size_t SumsSize() const { return size_t(NumSplits()) * q_heads() * head_dim; }
  [[nodiscard]] size_t WeightsSize() const { return size_t(NumSplits()) * q_heads() * 2; }
  [[nodiscard]] size_t LogitsSize() const {
    return mass == Mass::kNone ? 0 : size_t(q_heads()) * num_rows;
  }
  [[nodiscard]] size_t FoldSize() const { return SumsSize() + WeightsSize() + LogitsSize(); }
};

// RowAttention is the user data of both nodes.
struct RowAttention : RowFold {
  // If true, a list of slots in order of position says where in the pages a row lies; else rows lie
  // in the order of slots, from the first on.
  bool has_slots = false;
  bool adds_host = false;  // the merge adds the host's part
  bool has_sinks = false;  // the merge adds a logit without a row to the sum of each query head
  // Points to a second fold, over rows of T2, whose splits the merge joins too; null: there is
  // none.
  const RowFold* compressed = nullptr;

  // Return the sizes of the merge's result, F32: attention [query heads, head_dim]; log2 of the sum
  // of 2^logit [query heads], with the host's part and the sink; mass [kv heads or query heads,
  // rows of both folds], zero behind a list's end.
  [[nodiscard]] size_t OutSize() const { return size_t(q_heads()) * head_dim; }
  [[nodiscard]] int MassArrays() const {
    switch (mass) {
      case Mass::kNone:
        return 0;
      case Mass::kPerLayer:
        return 1;
      case Mass::kPerKvHead:
        return kv_heads;
      case Mass::kPerQueryHead:
        break;
    }
    return q_heads();
  }
  [[nodiscard]] int RowsOfMass() const {
    return num_rows + (compressed == nullptr ? 0 : compressed->num_rows);
  }
  [[nodiscard]] size_t MergeSize() const {
    return OutSize() + q_heads() + size_t(MassArrays()) * RowsOfMass();
  }
};

// RowAttentionInputs holds the inputs of both nodes.
struct RowAttentionInputs {
  ggml_tensor* q = nullptr;  // F32 [head_dim, query heads], each head's numbers beside each other
  // F16 [head_dim, rows], contiguous: keys by number of row, values kRowsOfPage rows further.
  ggml_tensor* rows = nullptr;
  // I32: numbers of rows [num_rows, kv heads], the kv heads of a row beside each other; of pages
  // (of their first row, over kRowsOfPage) [kv heads, num_pages].
  ggml_tensor* list = nullptr;
  ggml_tensor* slots = nullptr;   // I32, null unless it has slots
  ggml_tensor* counts = nullptr;  // I32 [kv heads]: the rows of each list
  // F32, null unless it adds the host's: attention [query heads, head_dim] over rows that the list
  // does not name, and log2 of the sum of 2^logit [query heads], minus infinity of no row.
  ggml_tensor* host = nullptr;
  ggml_tensor* sinks = nullptr;  // F32 [query heads]; null unless it has sinks
  // The result of the other fold, and I32 [kv heads]: its rows; null unless there is one.
  ggml_tensor* compressed_fold = nullptr;
  ggml_tensor* compressed_counts = nullptr;
  // F16, null or [num_rows] or [num_rows, 1, 1, kv heads]: where it is negative a row is hidden.
  ggml_tensor* mask = nullptr;
};

struct RowAttentionNodes {
  const RowAttention* attention = nullptr;
  ggml_tensor* fold = nullptr;
  ggml_tensor* merge = nullptr;
};

// Adds both nodes. `after` and `after_too` are nodes that must run before the fold, such as the
// ones that store its new row; null: none. REQUIRES: `attention` outlives the graph.
[[nodiscard]] RowAttentionNodes AddRowAttention(ggml_context* context,
                                                const RowAttention* attention,
                                                const RowAttentionInputs& inputs,
                                                ggml_tensor* after, ggml_tensor* after_too);

// Returns whether the CUDA kernels support this head size and this number of query heads of a kv
// head. They support neither sinks nor a soft cap.
[[nodiscard]] bool CudaRowAttentionTakes(int head_dim, int group);
// Returns the function that launches ebb's CUDA kernels; null in a program without them.
[[nodiscard]] decltype(DeviceOp::launch) CudaRowAttention();

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_ROW_ATTENTION_H_
