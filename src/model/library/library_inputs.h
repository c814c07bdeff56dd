// Sets the inputs of a graph that libllama built.
#ifndef EBB_MODEL_LIBRARY_LIBRARY_INPUTS_H_
#define EBB_MODEL_LIBRARY_LIBRARY_INPUTS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "src/base/ggml_deleter.h"
#include "src/model/library/device_graph.h"
#include "src/model/library/internals.h"
#include "src/model/loaded/decoder_graph.h"

namespace ebb {

class LibraryInputs final : public GraphInputs {
 public:
  // StateTensor is the part of a recurrent layer's state in the memory of a sequence.
  struct StateTensor {
    ggml_tensor* tensor = nullptr;  // [floats, sequences]
    size_t offset = 0;              // in the memory of one sequence
    size_t bytes = 0;
  };

  // Batch is a batch for libllama: equally many tokens of each sequence, one sequence after the
  // other.
  class Batch {
   public:
    // `hidden_floats`: of each token's hidden row; 0: the graph reads none. `reads_tokens`: whether
    // the graph reads tokens.
    Batch(int num_sequences, int tokens_of_each, int hidden_floats, bool reads_tokens);
    // Returns a view of this batch. REQUIRES: the batch outlives the view.
    [[nodiscard]] llama_ubatch ubatch();
    // Sets the tokens; the remaining ones become token 0 at position 0.
    void Set(std::span<const Token> tokens, std::span<const Position> positions);
    // Sets the hidden rows of the first tokens; the remaining ones become zeros.
    void SetHiddenRows(std::span<const float> rows);

   private:
    const int num_sequences_of_batch_, tokens_of_each_;
    const bool reads_tokens_;
    std::vector<llama_token> tokens_;
    std::vector<llama_pos> positions_;
    std::vector<int32_t> num_sequences_, sequence_index_;
    std::vector<llama_seq_id> sequences_, unique_sequences_;
    std::vector<llama_seq_id*> sequences_of_tokens_;
    std::vector<int8_t> outputs_;
    std::vector<float> hidden_rows_;  // empty: the graph reads none
  };

  // Takes over a built graph. late_output_rows: an input of ebb's own that selects the outputs;
  // null: libllama's input does.
  LibraryInputs(std::unique_ptr<llm_graph_result> built, Batch batch, ggml_tensor* late_output_rows)
      : built_(std::move(built)), batch_(std::move(batch)), late_output_rows_(late_output_rows) {}
  // Adds the recurrent states of the graph, whose tensors are in `context`. `graph` has the
  // contexts of the graph's own tensors; some of these are views of the states.
  void AddStates(std::unique_ptr<ggml_context, GgmlDeleter> context,
                 std::vector<StateTensor> states, std::array<ggml_context*, 2> graph);

  // Makes Set() write the inputs, including the rows of `lookups`, to host memory first and copy
  // them to the device. May throw std::bad_alloc.
  void StageOnHost(std::vector<RowLookup> lookups);

  void Set(std::span<const Token> tokens, std::span<const Position> positions,
           std::span<const int32_t> output_rows) override;
  void SetHiddenRows(std::span<const float> rows) override { batch_.SetHiddenRows(rows); }
  void SetStates(std::span<std::byte* const> states, std::span<std::byte> batch) override;
  void SetStates(std::span<std::byte* const> states, ggml_backend_buffer* buffer) override;
  [[nodiscard]] size_t StateBufferBytes(int num_sequences, size_t alignment) const override;
  void TakeStates() override;

 private:
  void SetOnHost(std::span<const Token> tokens, std::span<const Position> positions,
                 std::span<const int32_t> output_rows);
  void SetOnDevice(std::span<const Token> tokens, std::span<const Position> positions,
                   std::span<const int32_t> output_rows);
  void LookUpRows();
  void PlaceStateViews();

  const std::unique_ptr<llm_graph_result> built_;
  Batch batch_;
  ggml_tensor* const late_output_rows_;
  std::unique_ptr<ggml_context, GgmlDeleter> state_context_;
  std::vector<StateTensor> states_;
  std::vector<ggml_tensor*> state_views_;
  std::vector<std::byte*> state_memory_;  // of the sequences of the step
  bool states_are_on_device_ = false;
  std::vector<RowLookup> lookups_;
  struct Staged {
    ggml_tensor* tensor = nullptr;
    size_t offset = 0;  // in `stage_`
  };
  std::vector<Staged> staged_;                               // all inputs
  std::unique_ptr<ggml_backend_buffer, GgmlDeleter> stage_;  // null: the graph is on the host
};

}  // namespace ebb

#endif  // EBB_MODEL_LIBRARY_LIBRARY_INPUTS_H_
