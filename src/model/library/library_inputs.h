// The inputs of a graph that libllama built.
#ifndef EBB_MODEL_LIBRARY_LIBRARY_INPUTS_H_
#define EBB_MODEL_LIBRARY_LIBRARY_INPUTS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "src/model/decoder_graph.h"
#include "src/model/library/internals.h"

namespace ebb {

class LibraryInputs final : public GraphInputs {
 public:
  // A batch of libllama's, of tokens of one sequence each.
  class Batch {
   public:
    explicit Batch(int num_tokens);
    // A view of this object. REQUIRES: it outlives the view.
    [[nodiscard]] llama_ubatch ubatch();
    // Tokens beyond those given are token 0 at position 0.
    void Set(std::span<const Token> tokens, std::span<const Position> positions);

   private:
    std::vector<llama_token> tokens_;
    std::vector<llama_pos> positions_;
    std::vector<int32_t> num_sequences_, sequence_index_;
    std::vector<llama_seq_id> sequences_, unique_sequences_;
    std::vector<llama_seq_id*> sequences_of_tokens_;
    std::vector<int8_t> outputs_;
  };

  // late_output_rows: an input of ebb's own that selects the outputs; null: libllama's does.
  LibraryInputs(std::unique_ptr<llm_graph_result> built, int num_tokens,
                ggml_tensor* late_output_rows)
      : built_(std::move(built)), batch_(num_tokens), late_output_rows_(late_output_rows) {}

  void Set(std::span<const Token> tokens, std::span<const Position> positions,
           std::span<const int32_t> output_rows) override;

 private:
  const std::unique_ptr<llm_graph_result> built_;
  Batch batch_;
  ggml_tensor* const late_output_rows_;
};

}  // namespace ebb

#endif  // EBB_MODEL_LIBRARY_LIBRARY_INPUTS_H_
