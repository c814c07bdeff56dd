#include "src/model/library/library_inputs.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>

namespace ebb {
namespace {

// Returns whether an input belongs to libllama's cache. Attention is ebb's own, so such inputs have
// no tensor in the graph.
bool IsOfLibraryCache(llm_graph_input_i* input) {
  return dynamic_cast<llm_graph_input_attn_kv*>(input) != nullptr ||
         dynamic_cast<llm_graph_input_attn_k*>(input) != nullptr ||
         dynamic_cast<llm_graph_input_attn_kv_iswa*>(input) != nullptr ||
         dynamic_cast<llm_graph_input_attn_k_iswa*>(input) != nullptr;
}

// Copies `values` into a tensor of 32-bit integers in host memory, and fills the rest with zeros.
void SetIntegers(ggml_tensor* tensor, std::span<const int32_t> values) {
  std::memcpy(tensor->data, values.data(), values.size_bytes());
  std::memset(static_cast<char*>(tensor->data) + values.size_bytes(), 0,
              ggml_nbytes(tensor) - values.size_bytes());
}

// Returns the part of a hybrid model's input (attention and recurrent state) that selects the cells
// of the recurrent states; null if `input` is of another kind.
llm_graph_input_rs* StatesOf(llm_graph_input_i* input) {
  if (auto* hybrid = dynamic_cast<llm_graph_input_mem_hybrid*>(input)) return hybrid->get_recr();
  if (auto* hybrid = dynamic_cast<llm_graph_input_mem_hybrid_k*>(input)) return hybrid->get_recr();
  if (auto* hybrid = dynamic_cast<llm_graph_input_mem_hybrid_iswa*>(input)) {
    return hybrid->get_recr();
  }
  return nullptr;
}

void SetToIota(ggml_tensor* tensor) {
  auto* const values = static_cast<int32_t*>(tensor->data);
  std::iota(values, values + ggml_nelements(tensor), 0);
}

// kStageAlignment aligns staged inputs for ggml's CPU buffers.
constexpr size_t kStageAlignment = 64;

size_t RoundUp(size_t number, size_t step) { return (number + step - 1) / step * step; }

bool IsInGraph(const ggml_tensor* tensor) { return tensor != nullptr && tensor->data != nullptr; }

}  // namespace

LibraryInputs::Batch::Batch(int num_sequences, int tokens_of_each, int hidden_floats,
                            bool reads_tokens)
    : num_sequences_of_batch_(num_sequences),
      tokens_of_each_(tokens_of_each),
      reads_tokens_(reads_tokens),
      tokens_(size_t(num_sequences) * tokens_of_each),
      positions_(tokens_.size()),
      num_sequences_(tokens_.size(), 1),
      sequence_index_(LLAMA_MAX_SEQ, -1),
      sequences_(tokens_.size()),
      unique_sequences_(std::min(num_sequences, LLAMA_MAX_SEQ)),
      sequences_of_tokens_(tokens_.size()),
      outputs_(tokens_.size(), 1),
      hidden_rows_(tokens_.size() * static_cast<size_t>(hidden_floats)) {
  std::iota(unique_sequences_.begin(), unique_sequences_.end(), 0);
  for (const llama_seq_id sequence : unique_sequences_) sequence_index_[sequence] = sequence;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    sequences_[i] = static_cast<llama_seq_id>(i / tokens_of_each % LLAMA_MAX_SEQ);
  }
}

llama_ubatch LibraryInputs::Batch::ubatch() {
  for (size_t i = 0; i < tokens_.size(); ++i) sequences_of_tokens_[i] = &sequences_[i];
  llama_ubatch batch = {};
  batch.b_equal_seqs = 1;
  batch.n_tokens = static_cast<uint32_t>(tokens_.size());
  batch.n_seq_tokens = static_cast<uint32_t>(tokens_of_each_);
  batch.n_seqs = static_cast<uint32_t>(num_sequences_of_batch_);
  batch.n_seqs_unq = static_cast<uint32_t>(unique_sequences_.size());
  batch.n_pos = 1;
  if (reads_tokens_) batch.token = tokens_.data();
  batch.pos = positions_.data();
  batch.n_seq_id = num_sequences_.data();
  batch.seq_id = sequences_of_tokens_.data();
  batch.seq_id_unq = unique_sequences_.data();
  batch.seq_idx = sequence_index_.data();
  batch.output = outputs_.data();
  if (!hidden_rows_.empty()) batch.embd = hidden_rows_.data();
  return batch;
}

void LibraryInputs::Batch::Set(std::span<const Token> tokens, std::span<const Position> positions) {
  std::fill(std::ranges::copy(tokens, tokens_.begin()).out, tokens_.end(), 0);
  std::fill(std::ranges::copy(positions, positions_.begin()).out, positions_.end(), 0);
}

void LibraryInputs::Batch::SetHiddenRows(std::span<const float> rows) {
  std::fill(std::ranges::copy(rows, hidden_rows_.begin()).out, hidden_rows_.end(), 0.0F);
}

void LibraryInputs::SetOnHost(std::span<const Token> tokens, std::span<const Position> positions,
                              std::span<const int32_t> output_rows) {
  batch_.Set(tokens, positions);
  const llama_ubatch batch = batch_.ubatch();
  for (const auto& input : built_->inputs) {
    if (IsOfLibraryCache(input.get())) continue;
    if (const llm_graph_input_rs* states = StatesOf(input.get())) {
      // Each sequence's state is copied from the sequence's own cell.
      if (IsInGraph(states->s_copy)) SetToIota(states->s_copy);
      continue;
    }
    if (const auto* outputs = dynamic_cast<llm_graph_input_out_ids*>(input.get())) {
      if (!IsInGraph(outputs->out_ids)) continue;
      if (late_output_rows_ == nullptr && !output_rows.empty()) {
        SetIntegers(outputs->out_ids, output_rows);
      } else {
        SetToIota(outputs->out_ids);  // all tokens, in their order
      }
      continue;
    }
    if (const auto* position = dynamic_cast<llm_graph_input_pos*>(input.get());
        position != nullptr && !IsInGraph(position->pos)) {
      continue;
    }
    input->set_input(&batch);
  }
  if (late_output_rows_ != nullptr) SetIntegers(late_output_rows_, output_rows);
  LookUpRows();
}

void LibraryInputs::StageOnHost(std::vector<RowLookup> lookups) {
  lookups_ = std::move(lookups);
  size_t bytes = 0;
  const auto add = [&](ggml_tensor* tensor) {
    staged_.push_back({.tensor = tensor, .offset = bytes});
    bytes += RoundUp(ggml_nbytes(tensor), kStageAlignment);
  };
  ggml_context* const tensors = built_->get_ctx();
  for (ggml_tensor* tensor = ggml_get_first_tensor(tensors); tensor != nullptr;
       tensor = ggml_get_next_tensor(tensors, tensor)) {
    if ((tensor->flags & GGML_TENSOR_FLAG_INPUT) != 0 && tensor->op == GGML_OP_NONE) add(tensor);
  }
  if (late_output_rows_ != nullptr) add(late_output_rows_);
  stage_.reset(ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), bytes));
  if (stage_ == nullptr) throw std::bad_alloc();
}

// Sets inputs through host memory, because libllama's inputs write to the memory of their tensors
// directly.
void LibraryInputs::SetOnDevice(std::span<const Token> tokens, std::span<const Position> positions,
                                std::span<const int32_t> output_rows) {
  struct Place {
    ggml_backend_buffer* buffer;
    void* data;
  };
  std::vector<Place> places;
  for (const Staged& staged : staged_) {
    places.push_back({staged.tensor->buffer, staged.tensor->data});
    staged.tensor->buffer = stage_.get();
    staged.tensor->data =
        static_cast<std::byte*>(ggml_backend_buffer_get_base(stage_.get())) + staged.offset;
  }
  SetOnHost(tokens, positions, output_rows);
  for (size_t i = 0; i < staged_.size(); ++i) {
    ggml_tensor* const tensor = staged_[i].tensor;
    const void* const from = tensor->data;
    tensor->buffer = places[i].buffer;
    tensor->data = places[i].data;
    // Inputs of libllama's cache are not in the graph, and have no memory.
    if (tensor->data != nullptr) ggml_backend_tensor_set(tensor, from, 0, ggml_nbytes(tensor));
  }
}

void LibraryInputs::Set(std::span<const Token> tokens, std::span<const Position> positions,
                        std::span<const int32_t> output_rows) {
  if (stage_ != nullptr) return SetOnDevice(tokens, positions, output_rows);
  SetOnHost(tokens, positions, output_rows);
}

void LibraryInputs::LookUpRows() {
  for (const RowLookup& lookup : lookups_) {
    const ggml_tensor& table = *lookup.table;
    const auto to_float = ggml_get_type_traits(table.type)->to_float;
    const auto* ids = static_cast<const int32_t*>(lookup.ids->data);
    auto* to = static_cast<float*>(lookup.rows->data);
    for (int64_t i = 0; i < ggml_nelements(lookup.ids); ++i) {
      const auto* row = static_cast<const std::byte*>(table.data) + size_t(ids[i]) * table.nb[1];
      if (table.type == GGML_TYPE_F32) {
        std::memcpy(to, row, table.ne[0] * sizeof(float));
      } else {
        to_float(row, to, table.ne[0]);
      }
      to += table.ne[0];
    }
  }
}

void LibraryInputs::AddStates(std::unique_ptr<ggml_context, GgmlDeleter> context,
                              std::vector<StateTensor> states, std::array<ggml_context*, 2> graph) {
  state_context_ = std::move(context);
  states_ = std::move(states);
  for (ggml_context* tensors : graph) {
    for (ggml_tensor* tensor = ggml_get_first_tensor(tensors); tensor != nullptr;
         tensor = ggml_get_next_tensor(tensors, tensor)) {
      const auto is_viewed = [&](const StateTensor& state) {
        return state.tensor == tensor->view_src;
      };
      if (std::ranges::any_of(states_, is_viewed)) state_views_.push_back(tensor);
    }
  }
}

// A sequence that steps alone is read and written in place. For several sequences the graph works
// on copies in `batch`, where the states of one layer must be adjacent.
void LibraryInputs::SetStates(std::span<std::byte* const> states, std::span<std::byte> batch) {
  state_memory_.assign(states.begin(), states.end());
  for (const StateTensor& state : states_) {
    if (states.size() == 1) {
      state.tensor->data = states.front() + state.offset;
      continue;
    }
    std::byte* to = batch.data() + states.size() * state.offset;
    state.tensor->data = to;
    for (const std::byte* from : states) {
      std::memcpy(to, from + state.offset, state.bytes);
      to += state.bytes;
    }
  }
  PlaceStateViews();
}

void LibraryInputs::PlaceStateViews() {
  for (ggml_tensor* view : state_views_) {
    view->data = static_cast<std::byte*>(view->view_src->data) + view->view_offs;
    view->buffer = view->view_src->buffer;
  }
}

// Copies the states so that those of one layer are adjacent.
void LibraryInputs::SetStates(std::span<std::byte* const> states, ggml_backend_buffer* buffer) {
  states_are_on_device_ = true;
  state_memory_.assign(states.begin(), states.end());
  const size_t alignment = ggml_backend_buffer_get_alignment(buffer);
  auto* to = static_cast<std::byte*>(ggml_backend_buffer_get_base(buffer));
  for (const StateTensor& state : states_) {
    state.tensor->buffer = buffer;
    state.tensor->data = to;
    for (size_t i = 0; i < states.size(); ++i) {
      ggml_backend_tensor_set(state.tensor, states[i] + state.offset, i * state.bytes, state.bytes);
    }
    to += RoundUp(states.size() * state.bytes, alignment);
  }
  PlaceStateViews();
}

size_t LibraryInputs::StateBufferBytes(int num_sequences, size_t alignment) const {
  size_t bytes = 0;
  for (const StateTensor& state : states_) bytes += RoundUp(num_sequences * state.bytes, alignment);
  return bytes;
}

void LibraryInputs::TakeStates() {
  if (states_are_on_device_) {
    for (const StateTensor& state : states_) {
      for (size_t i = 0; i < state_memory_.size(); ++i) {
        ggml_backend_tensor_get(state.tensor, state_memory_[i] + state.offset, i * state.bytes,
                                state.bytes);
      }
    }
    return;
  }
  if (state_memory_.size() < 2) return;
  for (const StateTensor& state : states_) {
    const auto* from = static_cast<const std::byte*>(state.tensor->data);
    for (std::byte* to : state_memory_) {
      std::memcpy(to + state.offset, from, state.bytes);
      from += state.bytes;
    }
  }
}

}  // namespace ebb
