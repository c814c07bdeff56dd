#include "src/model/library/library_inputs.h"

#include <algorithm>
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

bool IsInGraph(const ggml_tensor* tensor) { return tensor != nullptr && tensor->data != nullptr; }

}  // namespace

LibraryInputs::Batch::Batch(int num_tokens)
    : tokens_(num_tokens),
      positions_(num_tokens),
      num_sequences_(num_tokens, 1),
      sequence_index_(LLAMA_MAX_SEQ, -1),
      sequences_(num_tokens, 0),
      unique_sequences_(1, 0),
      sequences_of_tokens_(num_tokens),
      outputs_(num_tokens, 1) {
  sequence_index_[0] = 0;
  for (int i = 0; i < num_tokens; ++i) sequences_of_tokens_[i] = &sequences_[i];
}

llama_ubatch LibraryInputs::Batch::ubatch() {
  llama_ubatch batch = {};
  batch.b_equal_seqs = 1;
  batch.n_tokens = static_cast<uint32_t>(tokens_.size());
  batch.n_seq_tokens = 1;
  batch.n_seqs = batch.n_tokens;
  batch.n_seqs_unq = 1;
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
    if (const auto* outputs = dynamic_cast<llm_graph_input_out_ids*>(input.get())) {
      if (!IsInGraph(outputs->out_ids)) continue;
      if (late_output_rows_ == nullptr) {
        SetIntegers(outputs->out_ids, output_rows);
      } else {
        // All tokens, in their order.
        auto* const rows = static_cast<int32_t*>(outputs->out_ids->data);
        std::iota(rows, rows + outputs->out_ids->ne[0], 0);
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

}  // namespace ebb
