// Holds the data of src/model/library about a model, and builds its graphs.
#ifndef EBB_MODEL_LIBRARY_LIBRARY_IMPL_H_
#define EBB_MODEL_LIBRARY_LIBRARY_IMPL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/base/ggml_deleter.h"
#include "src/base/threads/mutex.h"
#include "src/model/library/device_graph.h"
#include "src/model/library/graph_rewrite.h"
#include "src/model/library/internals.h"
#include "src/model/library/library_inputs.h"
#include "src/model/library/library_model.h"
#include "src/model/library/library_weights.h"

namespace ebb {

struct LibraryModel::Impl {
  VocabModel owned;  // until TakeModel()
  llama_model* model = nullptr;
  llama_cparams cparams = {};
  std::unique_ptr<llama_memory_i> memory;
  llama_memory_recurrent* recurrent = nullptr;  // of `memory`; null: the model has none
  // StatePlace is a place in libllama's memory that names the tensor of a state; while a graph is
  // built, the graph's own tensors are put there.
  struct StatePlace {
    ggml_tensor** tensor = nullptr;
    ggml_type type = GGML_TYPE_F32;
    int64_t floats = 0;  // of one sequence
    std::string name;
  };
  std::vector<StatePlace> state_places;
  llama_adapter_cvec control_vector;
  llama_adapter_loras loras;
  llama_cross cross;
  mutable Mutex mutex;  // one graph is built at a time
  // state_placeholder is where state tensors point until a step gives them memory.
  alignas(64) std::array<std::byte, 64> state_placeholder = {};
  const std::unique_ptr<ggml_backend_buffer, GgmlDeleter> state_buffer{
      ggml_backend_cpu_buffer_from_ptr(state_placeholder.data(), state_placeholder.size())};
  Hyperparameters hparams;
  std::vector<ggml_tensor*> rope_factors;  // by layer of rows
  std::vector<ggml_tensor*> sinks;         // the same
  WeightSet weights;                       // all tensors of the model
  Products products;                       // of a step of several tokens
  std::vector<ggml_tensor*> weights_read;
  WeightScales scales;  // of NVFP4 weights, which the builder of the family does not read
  WeightGroups groups;
  std::unique_ptr<ggml_context, GgmlDeleter> joined_context;  // of `joined`
  JoinedWeights joined;                                       // empty until the weights are placed
  std::map<const ggml_tensor*, double> expert_shares;  // of experts' weights, that a token reads
  int64_t max_library_nodes = 0;  // that libllama may need for a graph; 0: not known yet
  int num_nodes = 0;              // of the graph of one token
  int output_floats = 0;
  bool caps_logits = false;
  const LibraryModel* target = nullptr;  // of a head in a file of its own
  // selects_outputs says whether libllama's graph computes logits for the wanted tokens alone.
  bool selects_outputs = true;
  // takes_query_channels and takes_adapters say whether the graph has a place for the marks of
  // EvictionLayout::kQueryLastChannel and ::kAdapter.
  bool takes_query_channels = false, takes_adapters = false;
  WeightSizes sizes;
  std::unique_ptr<LibraryModel> mtp;  // of the model's MTP layer; null: it was not loaded
  std::string mtp_obstacle;           // LibraryModel's

  using StateTensor = LibraryInputs::StateTensor;
  struct Built {
    explicit Built(LibraryInputs::Batch batch_in) : batch(std::move(batch_in)) {}

    LibraryInputs::Batch batch;
    std::unique_ptr<ggml_context, GgmlDeleter> state_context;  // null: no recurrent state
    std::vector<StateTensor> states;
    std::unique_ptr<llm_graph_result> result;
    std::map<int, ggml_tensor*> block_outputs;  // by the block's number
  };
  struct BuildOptions {
    bool keeps_states = false;   // writes the states after each token. REQUIRES: one sequence
    bool has_head_rows = false;  // computes kHeadRows of all tokens
    bool encodes = false;        // builds the graph of a head that reads features, for these alone
    bool injects = false;        // DecoderGraphOptions'
  };
  // Builds the graph of a batch.
  [[nodiscard]] Built Build(int num_sequences, int tokens_of_each, int num_outputs,
                            const BuildOptions& options) const EBB_REQUIRES(mutex);
  // Returns whether the model's builder can keep the states after each token.
  [[nodiscard]] bool CanKeepStates() const EBB_REQUIRES(mutex);
  [[nodiscard]] Result<CacheNodes> FindNodes(llm_graph_result* built) const;
  // Replaces the state tensors in libllama's memory by tensors for `num_sequences` sequences, each
  // with `num_slots` states.
  void MakeStates(int num_sequences, int num_slots, Built* built) const;
  // Returns the memory context from which builders get the places of the batch's rows and states.
  [[nodiscard]] llama_memory_context_ptr MakeMemoryContext(const llama_ubatch& batch) const;
  // Returns the input of a block, which its norm in front of attention reads; null: the block has
  // no such norm. REQUIRES: the graph reads the model's own weights.
  [[nodiscard]] ggml_tensor* InputOf(int block, ggml_cgraph* graph) const;
  // Returns `scales` for the weights themselves and, on a device, for their copies.
  [[nodiscard]] WeightScales ScalesOf(const WeightCopies& copies) const;
  void FindStates();
  // Makes libllama's memory, and describes the model by a graph that is never run.
  Status BuildDry();
  // Fills `joined`. REQUIRES: the weights were placed.
  Status JoinPlacedWeights();
  // Checks that the graph of a head reads a token and a hidden row, and gives one.
  [[nodiscard]] Status CheckHead(const llm_graph_result& built) const;
  // Gives a head the tensors of its target that it reads. Errors: InvalidArgument if the head does
  // not belong to the target.
  [[nodiscard]] Status BindTo(const Model* target);
  Status BindEagle3(const Model& to);
  Status BindAssistant(const Model& to);
  Status BindDflash(const Model& to);
  // Checks the layers whose inputs a head reads, and sets hparams.target_blocks.
  Status BindFeatures(const Model& to, uint32_t floats_of_layer);
  // Gives a head its target's embeddings and output matrix where it has none.
  Status BindTables();
  // Checks that the graph of a DFlash head that stores rows stores those of all layers.
  [[nodiscard]] Status CheckInjects() const EBB_REQUIRES(mutex);
  // Returns how many floats the hidden row has that a head reads with a token, and gives.
  [[nodiscard]] int HiddenFloats() const;
  // Returns a cache of libllama that stands for the target's while an assistant's graph is built.
  [[nodiscard]] llama_memory_i* MakeAssistantMemory(const llama_cparams& of_memory) const;
  // Describes an assistant by the rows of its target that it reads. Errors: InvalidArgument if it
  // reads other rows than the target has.
  Status ReadAssistantShape(const CacheNodes& nodes, const llm_graph_result& built);
  // Checks the table by which a head's tokens are those of its target. REQUIRES: weights were read.
  [[nodiscard]] Status CheckTokenTable() const;
  // Returns the input of a graph's hidden rows; null: it has none.
  [[nodiscard]] static ggml_tensor* HiddenInputOf(const llm_graph_result& built);
  Status ReadShape(const CacheNodes& nodes, llm_graph_result* built);
  void ReadRopes(const CacheNodes& nodes, const llm_graph_result& built);
};

}  // namespace ebb

#endif  // EBB_MODEL_LIBRARY_LIBRARY_IMPL_H_
