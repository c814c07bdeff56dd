#include "src/model/library/library_inputs.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace ebb {
namespace {

// Attention is ebb's own, so that these have no tensor in the graph.
bool IsOfLibraryCache(llm_graph_input_i* input) {
  return dynamic_cast<llm_graph_input_attn_kv*>(input) != nullptr ||
         dynamic_cast<llm_graph_input_attn_k*>(input) != nullptr ||
         dynamic_cast<llm_graph_input_attn_kv_iswa*>(input) != nullptr ||
         dynamic_cast<llm_graph_input_attn_k_iswa*>(input) != nullptr;
}

// The input that selects recurrent states, of a model that has attention too; null: another input.
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

bool IsInGraph(const ggml_tensor* tensor) { return tensor != nullptr && tensor->data != nullptr; }

}  // namespace

LibraryInputs::Batch::Batch(int num_sequences, int tokens_of_each)
    : num_sequences_of_batch_(num_sequences),
      tokens_of_each_(tokens_of_each),
      tokens_(size_t(num_sequences) * tokens_of_each),
      positions_(tokens_.size()),
      num_sequences_(tokens_.size(), 1),
      sequence_index_(LLAMA_MAX_SEQ, -1),
      sequences_(tokens_.size()),
      unique_sequences_(std::min(num_sequences, LLAMA_MAX_SEQ)),
      sequences_of_tokens_(tokens_.size()),
      outputs_(tokens_.size(), 1) {
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
  batch.token = tokens_.data();
  batch.pos = positions_.data();
  batch.n_seq_id = num_sequences_.data();
  batch.seq_id = sequences_of_tokens_.data();
  batch.seq_id_unq = unique_sequences_.data();
  batch.seq_idx = sequence_index_.data();
  batch.output = outputs_.data();
  return batch;
}

void LibraryInputs::Batch::Set(std::span<const Token> tokens, std::span<const Position> positions) {
  std::fill(std::ranges::copy(tokens, tokens_.begin()).out, tokens_.end(), 0);
  std::fill(std::ranges::copy(positions, positions_.begin()).out, positions_.end(), 0);
}

void LibraryInputs::Set(std::span<const Token> tokens, std::span<const Position> positions,
                        std::span<const int32_t> output_rows) {
  batch_.Set(tokens, positions);
  const llama_ubatch batch = batch_.ubatch();
  for (const auto& input : built_->inputs) {
    if (IsOfLibraryCache(input.get())) continue;
    if (const llm_graph_input_rs* states = StatesOf(input.get())) {
      // Each sequence's state is copied from its own place.
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

// The graph reads and writes the state of a sequence that steps alone in place. For several
// sequences it gets copies in `batch`, which has the states of a layer next to each other.
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
  for (ggml_tensor* view : state_views_) {
    view->data = static_cast<std::byte*>(view->view_src->data) + view->view_offs;
  }
}

void LibraryInputs::TakeStates() {
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
