// RowAttention attends for one token over rows that lie anywhere in a device's memory, as two nodes
// of ggml's graph that ebb computes itself on backends that can run them. The nodes read rows in
// place, by lists, and get mass from the same pass. Node `fold` splits the rows of a kv head, in
// order of position, and attends to each split; node `merge` joins the splits.
//
// Results depend on the visible rows and on their number, not on their addresses. The number of
// splits depends on the longest list's length, rounded up.
#ifndef EBB_STEP_DEVICE_ROW_ATTENTION_H_
#define EBB_STEP_DEVICE_ROW_ATTENTION_H_

#include <cstddef>
#include <cstdint>

struct ggml_context;
struct ggml_tensor;

namespace ebb {

// DeviceOp is the base of the user data of ggml's GGML_OP_CUSTOM nodes that a backend can run.
struct DeviceOp {
  // Launches the node on `queue`, a queue of the backend; with CUDA, a cudaStream_t.
  void (*launch)(const DeviceOp* op, const ggml_tensor* node, void* queue) = nullptr;
};

// kRowsOfPage equals kRowsPerPage. The header of kRowsPerPage needs C++20, but this header and the
// kernels must be C++17.
inline constexpr int kRowsOfPage = 64;

// RowFold describes how a fold node splits a token's rows, and the layout of its result. It is the
// node's user data.
struct RowFold : DeviceOp {
  enum class Mass : uint8_t { kNone, kPerLayer, kPerKvHead, kPerQueryHead };

  int head_dim = 0;
  int kv_heads = 0;
  int group = 0;      // query heads of each kv head
  int num_rows = 0;   // length of the longest list, rounded up
  int num_pages = 0;  // length of a kv head's list of pages; 0: lists name rows
  // Holds the distance, in elements, between the slot lists of consecutive kv heads.
  int slot_stride = 0;
  Mass mass = Mass::kNone;
  float scale = 0;
  float soft_cap = 0;  // logits become soft_cap * tanh(x / soft_cap); 0: no cap

  [[nodiscard]] int q_heads() const { return kv_heads * group; }
  // kSplitsOfAllHeads is about how many splits, of all kv heads together, keep a large device busy.
  // It is the same for all devices, so that all split rows alike.
  static constexpr int kSplitsOfAllHeads = 384;
  static constexpr int kLeastRowsOfSplit = 64;
  [[nodiscard]] int RowsOfSplit() const {
    const int rows = (num_rows * kv_heads + kSplitsOfAllHeads - 1) / kSplitsOfAllHeads;
    return (rows + kLeastRowsOfSplit - 1) / kLeastRowsOfSplit * kLeastRowsOfSplit;
  }
  [[nodiscard]] int NumSplits() const { return (num_rows + RowsOfSplit() - 1) / RowsOfSplit(); }

  // Return the sizes, in floats, of the parts of the fold's result, in this order: sums of values
  // [splits, query heads, head_dim], each weighted by 2^(logit - the split's largest); largest
  // logits and sums of weights [splits, query heads, 2]; if mass is wanted, logits [query heads,
  // num_rows]. Logits are to base 2.
  [[nodiscard]] size_t SumsSize() const { return size_t(NumSplits()) * q_heads() * head_dim; }
  [[nodiscard]] size_t WeightsSize() const { return size_t(NumSplits()) * q_heads() * 2; }
  [[nodiscard]] size_t LogitsSize() const {
    return mass == Mass::kNone ? 0 : size_t(q_heads()) * num_rows;
  }
  [[nodiscard]] size_t FoldSize() const { return SumsSize() + WeightsSize() + LogitsSize(); }
};

// RowAttention is the user data of the fold node and of the merge node.
struct RowAttention : RowFold {
  // If true, rows lie in pages as lists of slots say, in order of position; else in slot order,
  // from the first slot on.
  bool has_slots = false;
  bool adds_host = false;  // the merge adds the host's part
  bool has_sinks = false;  // the merge adds a logit without a row to the sum of each query head
  // Points to a second fold, over rows of T2, whose splits the merge joins too; null: there is
  // none.
  const RowFold* compressed = nullptr;

  // Return the sizes, in floats, of the parts of the merge's result, in this order: attention
  // [query heads, head_dim]; log2 of the sum of 2^logit [query heads], including the host's part
  // and the sink; mass [kv heads or query heads, rows of both folds], zero after the end of a list.
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

// RowAttentionInputs holds the input tensors of both nodes.
struct RowAttentionInputs {
  ggml_tensor* q = nullptr;  // F32 [head_dim, query heads], each head contiguous
  // Holds the rows, F16 [head_dim, rows], contiguous: a value is kRowsOfPage rows after its key.
  ggml_tensor* rows = nullptr;
  // Lists rows, I32 [num_rows, kv heads] with the kv heads of a row contiguous, by their index in
  // `rows` (the key's); or pages, [kv heads, num_pages], by the index of their first row over
  // kRowsOfPage.
  ggml_tensor* list = nullptr;
  ggml_tensor* slots = nullptr;   // I32; null unless RowAttention::has_slots
  ggml_tensor* counts = nullptr;  // I32 [kv heads]: lengths of the lists
  // Holds the host's part, F32, null unless RowAttention::adds_host: attention [query heads,
  // head_dim] over rows that the list does not name, and log2 of their sum of 2^logit [query
  // heads], minus infinity without rows.
  ggml_tensor* host = nullptr;
  ggml_tensor* sinks = nullptr;  // F32 [query heads]; null unless has_sinks
  // Are the result of the fold over T2 and the number of its rows, I32 [kv heads]; null if there is
  // none.
  ggml_tensor* compressed_fold = nullptr;
  ggml_tensor* compressed_counts = nullptr;
  // Hides rows where it is negative, F16 [num_rows] or [num_rows, 1, 1, kv heads]; null: hides
  // none.
  ggml_tensor* mask = nullptr;
};

struct RowAttentionNodes {
  const RowAttention* attention = nullptr;
  ggml_tensor* fold = nullptr;
  ggml_tensor* merge = nullptr;
};

// Adds both nodes to the graph. `after` and `after_too` are nodes that must run before the fold,
// such as those that store its new row, or null. REQUIRES: `attention` outlives the graph.
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
