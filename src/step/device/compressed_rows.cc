#include "src/step/device/compressed_rows.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <vector>

#include "ggml-cpu.h"
#include "ggml.h"
#include "src/attention/compressed.h"
#include "src/step/device/host_fold.h"

namespace ebb {
namespace {

void RotateAlone(float* x, int head_dim) {
  RotateByLanes(x, head_dim, 0, 1, [] {});
}

// Records finds the compressed records of rows through the tensors that a node reads.
class Records {
 public:
  Records(const RecordFormat& format, int num_pages, int slot_stride, ggml_tensor* const* sources)
      : format_(format),
        num_pages_(num_pages),
        slot_stride_(slot_stride),
        rows_(static_cast<const uint8_t*>(sources[0]->data)),
        row_bytes_(sources[0]->nb[1]),
        pages_(static_cast<const int32_t*>(sources[1]->data)),
        slots_(static_cast<const int32_t*>(sources[2]->data)),
        counts_(static_cast<const int32_t*>(sources[3]->data)),
        centres_(static_cast<const float*>(sources[4]->data)) {}

  [[nodiscard]] int Count(int head) const { return counts_[head]; }
  [[nodiscard]] const float* Centre(int head) const { return centres_ + head * format_.head_dim; }
  void ReadKey(int head, int row, float* to) const {
    Read(At(head, row), to,
         [](auto type, const RecordFormat& format, const uint8_t* record, int i) {
           return KeyElement<decltype(type)::kType>(format, record, i);
         });
  }
  void ReadValue(int head, int row, float* to) const {
    Read(At(head, row), to,
         [](auto type, const RecordFormat& format, const uint8_t* record, int i) {
           return ValueElement<decltype(type)::kType>(format, record, i);
         });
  }

 private:
  template <RecordType kTypeOf>
  struct Type {
    static constexpr RecordType kType = kTypeOf;
  };
  [[nodiscard]] const uint8_t* At(int head, int row) const {
    const int slot = slots_[head * slot_stride_ + row];
    const int64_t page = pages_[head * num_pages_ + slot / kRowsOfPage];
    return rows_ + page * row_bytes_ + size_t(slot % kRowsOfPage) * format_.stride;
  }
  template <typename Element>
  void Read(const uint8_t* record, float* to, const Element& element) const {
    const auto read = [&](auto type) {
      for (int i = 0; i < format_.head_dim; ++i) to[i] = element(type, format_, record, i);
    };
    switch (format_.type) {
      case RecordType::kInt8:
        return read(Type<RecordType::kInt8>());
      case RecordType::kInt4:
        return read(Type<RecordType::kInt4>());
      case RecordType::kInt3:
        return read(Type<RecordType::kInt3>());
    }
  }

  const RecordFormat& format_;
  const int num_pages_, slot_stride_;
  const uint8_t* const rows_;
  const int64_t row_bytes_;
  const int32_t *const pages_, *const slots_, *const counts_;
  const float* const centres_;
};

std::array<ggml_tensor*, 5> SourcesOf(const CompressedInputs& inputs) {
  return {inputs.rows, inputs.pages, inputs.slots, inputs.counts, inputs.centres};
}

// RecordRows gives HostFold access to rows of T2, which the fold node's source tensors list.
class RecordRows {
 public:
  RecordRows(const CompressedFold& fold, const ggml_tensor* node)
      : fold_(fold),
        q_(node->src[0]),
        records_(fold.format, fold.num_pages, fold.slot_stride, node->src + 1),
        row_(fold.head_dim) {}

  // Returns the number of rows of a kv head, as HostFold asks for it.
  [[nodiscard]] int Count(int head) const { return records_.Count(head); }
  // Prepares the head's queries: computes their products with the head's centre, and rotates them.
  void BeginSplit(int head) {
    const int size = fold_.head_dim;
    queries_.resize(size_t(fold_.group) * size);
    centre_dots_.assign(fold_.group, 0.0f);
    for (int i = 0; i < fold_.group; ++i) {
      const auto* q = reinterpret_cast<const float*>(static_cast<const std::byte*>(q_->data) +
                                                     (head * fold_.group + i) * q_->nb[1]);
      float* const query = queries_.data() + size_t(i) * size;
      std::copy_n(q, size, query);
      for (int d = 0; d < size; ++d) centre_dots_[i] += q[d] * records_.Centre(head)[d];
      if (fold_.format.is_rotated) RotateAlone(query, size);
    }
  }
  void Logits(int head, int row, float* logits) {
    records_.ReadKey(head, row, row_.data());
    for (int i = 0; i < fold_.group; ++i) {
      const float* const q = queries_.data() + size_t(i) * fold_.head_dim;
      float dot = centre_dots_[i];
      for (int d = 0; d < fold_.head_dim; ++d) dot += q[d] * row_[d];
      logits[i] = LogitOf(fold_, dot);
    }
  }
  const float* Value(int head, int row) {
    records_.ReadValue(head, row, row_.data());
    return row_.data();
  }
  void EndSplit(int head, float weight, float* sum) const {
    if (fold_.format.is_rotated) RotateAlone(sum, fold_.head_dim);
    if (fold_.format.has_values) return;
    for (int d = 0; d < fold_.head_dim; ++d) sum[d] += weight * records_.Centre(head)[d];
  }

 private:
  const CompressedFold& fold_;
  const ggml_tensor* const q_;
  const Records records_;
  std::vector<float> queries_, centre_dots_, row_;
};

void FoldCompressedOnHost(ggml_tensor* node, int thread, int num_threads, void* data) {
  const auto& fold = *static_cast<const CompressedFold*>(data);
  RecordRows rows(fold, node);
  HostFold(fold, node, &rows).Run(thread, num_threads);
}

void UnpackOnHost(ggml_tensor* node, int thread, int num_threads, void* data) {
  const auto& unpack = *static_cast<const UnpackRows*>(data);
  const Records records(unpack.format, unpack.num_compressed_pages, unpack.slot_stride,
                        node->src + 1);
  const int size = unpack.format.head_dim, num_rows = unpack.num_rows;
  const auto* const list = static_cast<const int32_t*>(node->src[0]->data);
  const auto* const rows = static_cast<const ggml_fp16_t*>(node->src[1]->data);
  const size_t of_head = size_t(num_rows + unpack.num_compressed) * size;
  std::vector<float> row(size);
  for (int head = thread; head < unpack.kv_heads; head += num_threads) {
    auto* const keys = static_cast<ggml_fp16_t*>(node->data) + head * of_head;
    ggml_fp16_t* const values = keys + unpack.kv_heads * of_head;
    for (int i = 0; i < num_rows; ++i) {
      const int64_t number =
          unpack.num_pages > 0
              ? int64_t{list[head * unpack.num_pages + i / kRowsOfPage]} * kRowsOfPage +
                    i % kRowsOfPage
              : list[size_t(i) * unpack.kv_heads + head];
      std::copy_n(rows + number * size, size, keys + size_t(i) * size);
      std::copy_n(rows + (number + kRowsOfPage) * size, size, values + size_t(i) * size);
    }
    for (int i = 0; i < unpack.num_compressed; ++i) {
      const size_t at = size_t(num_rows + i) * size;
      if (i >= records.Count(head)) {
        std::fill_n(keys + at, size, ggml_fp16_t{0});
        std::fill_n(values + at, size, ggml_fp16_t{0});
        continue;
      }
      records.ReadKey(head, i, row.data());
      if (unpack.format.is_rotated) RotateAlone(row.data(), size);
      for (int d = 0; d < size; ++d) row[d] += records.Centre(head)[d];
      ggml_fp32_to_fp16_row(row.data(), keys + at, size);
      records.ReadValue(head, i, row.data());
      if (unpack.format.is_rotated) RotateAlone(row.data(), size);
      ggml_fp32_to_fp16_row(row.data(), values + at, size);
    }
  }
}

RecordType TypeOf(CompressedType type) {
  if (IsInt8(type)) return RecordType::kInt8;
  return type == CompressedType::kInt4 ? RecordType::kInt4 : RecordType::kInt3;
}

}  // namespace

RecordFormat RecordFormatOf(const CompressedFormat& format) {
  const CompressedLayout layout = LayoutOf(format);
  return {.type = TypeOf(format.type),
          .is_rotated = IsRotated(format.type),
          .has_values = format.has_values,
          .head_dim = format.head_dim,
          .stride = static_cast<int>(layout.row_stride),
          .values = static_cast<int>(layout.values),
          .scales = static_cast<int>(layout.scales)};
}

ggml_tensor* AddCompressedFold(ggml_context* context, const CompressedFold* fold, ggml_tensor* q,
                               const CompressedInputs& inputs) {
  assert(q->type == GGML_TYPE_F32 && q->nb[0] == sizeof(float));
  std::array<ggml_tensor*, 6> sources = {q};
  std::ranges::copy(SourcesOf(inputs), sources.begin() + 1);
  return ggml_custom_4d(context, GGML_TYPE_F32, static_cast<int64_t>(fold->FoldSize()), 1, 1, 1,
                        sources.data(), static_cast<int>(sources.size()), FoldCompressedOnHost,
                        GGML_N_TASKS_MAX, const_cast<CompressedFold*>(fold));
}

ggml_tensor* AddUnpackRows(ggml_context* context, const UnpackRows* unpack, ggml_tensor* list,
                           const CompressedInputs& inputs, ggml_tensor* after,
                           ggml_tensor* after_too) {
  assert(unpack->format.has_values);
  std::array<ggml_tensor*, 8> sources = {list};
  std::ranges::copy(SourcesOf(inputs), sources.begin() + 1);
  int num_sources = 6;
  for (ggml_tensor* tensor : {after, after_too}) {
    if (tensor != nullptr) sources[num_sources++] = tensor;
  }
  return ggml_custom_4d(context, GGML_TYPE_F16, unpack->format.head_dim,
                        unpack->num_rows + unpack->num_compressed, unpack->kv_heads, 2,
                        sources.data(), num_sources, UnpackOnHost, GGML_N_TASKS_MAX,
                        const_cast<UnpackRows*>(unpack));
}

#ifndef EBB_HAS_CUDA_KERNELS
decltype(DeviceOp::launch) CudaCompressedFold() { return nullptr; }
decltype(DeviceOp::launch) CudaUnpackRows() { return nullptr; }
#endif

}  // namespace ebb
